// Overview: facts about the run, early warnings, and curves.

const LEVELS = { ok: ["✓", "fine"], watch: ["!", "watch"], alarm: ["▲", "alarm"], unknown: ["·", "no verdict"] };

function showOverview(store, go) {
  const { index } = store;
  const section = byId("overview");
  const onStep = (step) => go({ view: "episodes", filters: { from: step, to: step, kind: "training" } });
  put(
    section,
    el("h2", { id: "overview-title", class: "unseen" }, "Overview"),
    headline(store),
    warningPanel(index.warnings, go),
    el("h3", {}, "Curves"),
    el("div", { class: "charts" }, index.panels.map((panel) => panelChart(panel, index.metrics, onStep))),
    index.panels.length ? null : el("p", { class: "quiet" }, "No metrics yet."),
    metricPicker(index.metrics, onStep),
  );
}

/** Shows one fact per line, and the share of solved tasks at the start and the end. */
function headline(store) {
  const { index } = store;
  const facts = index.facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)));
  return el(
    "div",
    { class: "headline" },
    el("div", { class: "numbers" }, bigNumbers(store).map(([value, label]) =>
      el("div", { class: "number" }, el("strong", {}, value), el("span", {}, label)))),
    el("dl", { class: "facts" }, facts),
  );
}

function bigNumbers(store) {
  const { metrics } = store.index;
  const numbers = [[store.count.toLocaleString("en"), store.count === 1 ? "episode" : "episodes"]];
  const steps = new Set(store.files.filter((f) => f.kind !== "eval").map((f) => f.step));
  numbers.push([String(steps.size), "steps with episodes"]);
  for (const [name, label] of [["rollout/success", "solved in training"], ["eval/success", "solved, held out"]]) {
    const metric = metrics[name];
    if (!metric) continue;
    const all = metric.steps.map((step, i) => [step, percent(metric.values[i])])
      .concat(metric.nonfinite.map((step) => [step, "not finite"])).sort(([a], [b]) => a - b);
    numbers.push([`${all[0][1]} → ${all[all.length - 1][1]}`, label]);
  }
  return numbers;
}

function warningPanel(warnings, go) {
  const bad = warnings.filter((w) => w.level === "watch" || w.level === "alarm").length;
  const summary = bad ? `${bad} of ${warnings.length} need a look` : "nothing stands out";
  return el(
    "section",
    { class: "warnings", "aria-labelledby": "warnings-title" },
    el("h3", { id: "warnings-title" }, "Early warning ", el("span", { class: "quiet" }, summary)),
    el("ul", { class: "cards" }, warnings.map((warning) => warningCard(warning, go))),
  );
}

const WARNING_FILTERS = {
  saturation: { outcome: "horizon" },
  repeated: { flag: "repeated" },
  parse_errors: { flag: "parse_errors" },
  rejected: { flag: "rejected" },
};

function warningCard(warning, go) {
  const [sign, words] = LEVELS[warning.level];
  const filters = WARNING_FILTERS[warning.key];
  return el(
    "li",
    { class: `card level-${warning.level}` },
    el("h4", {}, warning.title),
    el("p", { class: "value" },
      el("strong", {}, warning.nonfinite ? "not finite"
        : warning.unit === "share" ? percent(warning.recent) : short(warning.recent)),
      warning.unit === "nats" && !warning.nonfinite ? el("span", { class: "quiet" }, " nats") : null,
      el("span", { class: "level" }, el("span", { "aria-hidden": "true" }, sign), ` ${words}`)),
    sparkline(warning.points),
    el("p", {}, warning.meaning),
    el("p", { class: "quiet" }, warning.limits),
    filters
      ? el("button", { type: "button", class: "plain", on: {
          click: () => go({ view: "episodes", filters: { kind: "training", ...filters } }) } }, "Show such episodes",
          el("span", { class: "unseen" }, `: ${warning.title}`))
      : null,
  );
}

function panelChart(panel, metrics, onStep) {
  const series = panel.series || panel.metrics.map((name) => named(name, metrics));
  return chart({ title: panel.title, unit: panel.unit, series, isStacked: panel.stacked, onStep });
}

function named(name, metrics) {
  const { steps, values, nonfinite } = metrics[name];
  return { label: name, steps, values, nonfinite };
}

/** Draws any other metric that the reader chooses. */
function metricPicker(metrics, onStep) {
  const place = el("div", { class: "charts" });
  const names = Object.keys(metrics);
  if (!names.length) return null;
  const draw = (name) => {
    if (!metrics[name]) return;
    const { meaning, unit } = metrics[name];
    const title = meaning.charAt(0).toUpperCase() + meaning.slice(1);
    place.replaceChildren(chart({
      title, unit: unit === "fraction" ? "share" : unit, series: [named(name, metrics)], onStep,
    }));
  };
  const select = el(
    "select",
    { id: "metric", on: { change: (event) => draw(event.target.value) } },
    el("option", { value: "" }, `choose one of ${names.length}`),
    names.map((name) => el("option", { value: name }, name)),
  );
  return el("div", { class: "picker" }, el("label", { for: "metric" }, "Any metric "), select, place);
}
