// Config and provenance of a run; for two runs, the keys that differ.

function showConfig(index) {
  const section = byId("config");
  const title = el("h2", { id: "config-title" }, "Config");
  if (!index.comparison) {
    put(section, title, configTable(index.config, ["Key", "Value"]),
      el("h3", {}, "Provenance"), plainTable(index.provenance, ["Key", "Value"]));
    return;
  }
  const { config } = index.comparison;
  const names = index.runs.map((run) => run.name);
  put(section, title,
    el("h3", {}, `Differences (${config.length})`),
    config.length ? plainTable(config, ["Key", `A: ${names[0]}`, `B: ${names[1]}`]) : el("p", { class: "quiet" }, "The configs are the same."),
    index.runs.map((run, i) => el("details", { class: "whole" },
      el("summary", {}, `The whole config of ${"AB"[i]}: ${run.name}`), configTable(run.config, ["Key", "Value"]))));
}

/** Shows the keys of a config below their sections, with a field that filters them. */
function configTable(pairs, heads) {
  if (!pairs.length) return el("p", { class: "quiet" }, "This folder has no config.json.");
  const rows = pairs.map((pair) => ({ text: pair.join(" ").toLowerCase(), section: pair[0].split(".")[0], row: valueRow(pair) }));
  const headings = new Map();
  const body = el("tbody", {}, rows.map(({ section, row }) => {
    if (headings.has(section)) return row;
    headings.set(section, el("tr", { class: "section" }, el("th", { colspan: heads.length, scope: "rowgroup" }, section)));
    return [headings.get(section), row];
  }));
  const count = el("span", { class: "quiet", role: "status" });
  const filter = (words) => {
    const shown = rows.filter(({ text, row }) => !(row.hidden = !text.includes(words)));
    headings.forEach((heading, section) => (heading.hidden = !shown.some((r) => r.section === section)));
    count.textContent = words ? ` ${shown.length} of ${rows.length} keys` : ` ${rows.length} keys`;
  };
  filter("");
  const field = el("input", { type: "search", "aria-label": "Filter keys and values", placeholder: "filter keys and values",
    autocomplete: "off", on: { input: (event) => filter(event.target.value.trim().toLowerCase()) } });
  return [el("p", { class: "config-filter" }, field, count), el("table", { class: "values" }, tableHead(heads), body)];
}

function plainTable(rows, heads) {
  return el("table", { class: "values" }, tableHead(heads), el("tbody", {}, rows.map(valueRow)));
}

function tableHead(heads) {
  return el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, head))));
}

function valueRow([key, ...values]) {
  return el("tr", {}, el("th", { scope: "row" }, el("code", {}, key)), values.map((value) => el("td", {}, el("code", {}, value))));
}
