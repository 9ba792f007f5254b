// Filters of the episode list, and their form.

const NO_FILTERS = {
  kind: "", from: "", to: "", group: "", outcome: "", low: "", high: "", flag: "", text: "", sort: "newest", run: "",
};
const FLAGS = {
  repeated: "repeated actions",
  parse_errors: "parse errors",
  rejected: "rejected actions",
  cut: "turns cut off",
  replayed: "whole world drawn",
  discarded: "not learned from",
};
const SORTS = {
  newest: ["newest first", (s, a, b) => s.files[s.fileOf[b]].step - s.files[s.fileOf[a]].step || s.fileOf[b] - s.fileOf[a]],
  oldest: ["oldest first", null],
  "reward-down": ["reward, best first", (s, a, b) => s.columns.reward[b] - s.columns.reward[a]],
  "reward-up": ["reward, worst first", (s, a, b) => s.columns.reward[a] - s.columns.reward[b]],
  turns: ["turns, most first", (s, a, b) => s.columns.turns[b] - s.columns.turns[a]],
  advantage: ["advantage, highest first", (s, a, b) => s.columns.advantage[b] - s.columns.advantage[a]],
  entropy: ["least likely tokens first", (s, a, b) => s.columns.entropy[b] - s.columns.entropy[a]],
  repeated: ["repeats, most first", (s, a, b) => s.columns.repeated[b] - s.columns.repeated[a]],
};

/** Returns the numbers of the episodes that pass the filters, sorted. */
function filtered(store, filters) {
  const tests = filterTests(store, { ...NO_FILTERS, ...filters });
  const found = [];
  for (let i = 0; i < store.count; i++) if (tests.every((test) => test(i))) found.push(i);
  const [, order] = SORTS[filters.sort] || SORTS.newest;
  return order ? found.sort((a, b) => order(store, a, b) || a - b) : found;
}

function filterTests(store, f) {
  const { files, fileOf, columns } = store;
  const tests = [];
  const number = (text) => (text === "" || Number.isNaN(Number(text)) ? null : Number(text));
  const bound = (text, test) => {
    const limit = number(text);
    if (limit !== null) tests.push((i) => test(i, limit));
  };
  if (f.kind === "training") tests.push((i) => files[fileOf[i]].kind !== "eval");
  else if (f.kind) tests.push((i) => files[fileOf[i]].kind === f.kind);
  bound(f.from, (i, step) => files[fileOf[i]].step >= step);
  bound(f.to, (i, step) => files[fileOf[i]].step <= step);
  bound(f.low, (i, reward) => columns.reward[i] >= reward);
  bound(f.high, (i, reward) => columns.reward[i] <= reward);
  if (f.run) tests.push((i) => files[fileOf[i]].run === Number(f.run));
  if (f.group) tests.push((i) => store.value("group", i) === f.group);
  if (f.outcome) tests.push((i) => store.value("outcome", i) === f.outcome);
  if (f.flag === "replayed") tests.push((i) => store.replayed.has(i));
  else if (f.flag && columns[f.flag]) tests.push((i) => columns[f.flag][i] > 0);
  const words = f.text.trim().toLowerCase();
  if (words) tests.push(textTest(store, words));
  return tests;
}

/** Searches each distinct goal and task name once: 20,000 episodes have far fewer of them. */
function textTest(store, words) {
  const hits = (column) => column.table.map((text) => text.toLowerCase().includes(words));
  const columns = [store.columns.item, store.columns.goal, store.columns.group].map((column) => [column, hits(column)]);
  return (i) => columns.some(([column, found]) => found[column.index[i]]);
}

/** Creates the form; `onChange` receives all values whenever one changes. */
function filterForm(store, filters, onChange) {
  const kinds = [...new Set(store.files.map((f) => f.kind))];
  const groups = store.columns.group ? [...store.columns.group.table].sort() : [];
  const outcomes = store.columns.outcome ? store.columns.outcome.table : [];
  const form = el("form", { class: "filters", role: "search", "aria-label": "Filter episodes" },
    labelled("Search", el("input", {
      type: "search", name: "text", id: "filter-text", placeholder: "goal or task   ( / )", autocomplete: "off" })),
    store.index.runs ? labelled("Run", choice("run", [["", "A and B"], ["0", "A"], ["1", "B"]])) : null,
    labelled("Episodes of", choice("kind", [["", "all"], ["training", "training"],
      ...kinds.filter((k) => k !== "step").map((k) => [k, k === "eval" ? "evaluation" : k])])),
    pair("Steps", "from", "to", "1"),
    labelled("Task group", choice("group", [["", "all"], ...groups.map((g) => [g, g])])),
    labelled("Outcome", choice("outcome", [["", "all"], ...outcomes.map((o) => [o, outcomeWords(o)])])),
    pair("Reward", "low", "high", "any"),
    labelled("Only", choice("flag", [["", "all"], ...Object.entries(FLAGS)])),
    labelled("Sort by", choice("sort", Object.entries(SORTS).map(([key, [words]]) => [key, words]))),
    el("button", { type: "reset", class: "plain" }, "Clear"),
  );
  setForm(form, filters);
  form.addEventListener("input", () => onChange(Object.fromEntries(new FormData(form))));
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(() => onChange({ ...NO_FILTERS })));
  return form;
}

function setForm(form, filters) {
  for (const [name, value] of Object.entries({ ...NO_FILTERS, ...filters })) {
    if (form.elements[name]) form.elements[name].value = value;
  }
}

function labelled(text, control) {
  return el("label", {}, el("span", {}, text), control);
}

function choice(name, options) {
  return el("select", { name }, options.map(([value, text]) => el("option", { value }, text)));
}

/** Creates inputs for a lower and an upper limit. */
function pair(text, low, high, step) {
  const input = (name, words) => el("input", {
    type: "number", name, step, "aria-label": `${text} ${words}`, placeholder: words, inputmode: "decimal" });
  return el("div", { class: "pair", role: "group", "aria-label": text },
    el("span", { "aria-hidden": "true" }, text), input(low, "from"), input(high, "to"));
}
