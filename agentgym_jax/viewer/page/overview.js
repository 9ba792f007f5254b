// Overview: facts about the run, early warnings, and curves.

const LEVELS = { ok: ["✓", "fine"], watch: ["!", "watch"], alarm: ["▲", "alarm"], unknown: ["·", "no verdict"] };

function showOverview(store, go) {
  const { index } = store;
  const { verdict } = index;
  const onStep = (step) => go({ view: "episodes", filters: { from: step, to: step, kind: "training" } });
  const results = verdict.changes.length ? verdict.changes : verdict.results || [];
  const onGroup = (group) => go({ view: "episodes", filters: { kind: "eval", group } });
  put(
    byId("overview"),
    el("h2", { id: "overview-title", class: "unseen" }, "Overview"),
    verdictCard(verdict, CHANGES, [(change) => `step ${change.step_a}`, (change) => `step ${change.step_b}`]),
    headline(store),
    el("div", { class: "two" },
      results.length ? el("div", {}, groupSection(results, CHANGES, ["Before", "After"], onGroup), evaluationSection(index.evaluations, go)) : null,
      highlightSection(store)),
    warningPanel(index.warnings, go),
    el("h3", {}, "Curves"),
    el("div", { class: "charts" }, index.panels.map((panel) => panelChart(panel, index.metrics, onStep))),
    index.panels.length ? null : el("p", { class: "quiet" }, "No metrics yet."),
    metricPicker(index.metrics, onStep),
  );
}

/** Shows counts, cost, and one fact per line. */
function headline(store) {
  const { index } = store;
  return el(
    "div",
    { class: "headline" },
    el("div", { class: "numbers" }, bigNumbers(store).map(([value, label]) =>
      el("div", { class: "number" }, el("strong", {}, value), el("span", {}, label)))),
    factList(index.facts, "facts"),
  );
}

function bigNumbers(store) {
  const { metrics } = store.index;
  const numbers = [[store.count.toLocaleString("en"), store.count === 1 ? "episode" : "episodes"]];
  const steps = new Set(store.files.filter((f) => f.kind !== "eval").map((f) => f.step));
  if (steps.size) numbers.push([String(steps.size), "steps with episodes"]);
  const metric = metrics["rollout/success"];
  if (metric) {
    const all = metric.steps.map((step, i) => [step, percent(metric.values[i])])
      .concat(metric.nonfinite.map((step) => [step, "not finite"])).sort(([a], [b]) => a - b);
    numbers.push([`${all[0][1]} → ${all[all.length - 1][1]}`, "solved in training"]);
  }
  return numbers.concat(store.index.cost.map(([label, value]) => [value, label]));
}

/** Lists the episodes that are worth reading, with the reason. */
function highlightSection(store) {
  const { highlights } = store.index;
  if (!highlights.length) return null;
  return el("section", { class: "highlights", "aria-labelledby": "highlights-title" },
    el("h3", { id: "highlights-title" }, "Episodes to look at"),
    el("ul", {}, highlights.map(({ title, why, episode, other }) => {
      const row = store.row(episode);
      const pair = other === null ? null : [store.row(other), row].sort((a, b) => a.step - b.step).map((r) => r.link);
      return el("li", {},
        el("h4", {}, el("a", { href: `#episode=${row.link}` }, title), " ", outcomeBadge(row.outcome)),
        el("p", {}, why, pair ? [" · ", el("a", { href: `#compare=${pair.join(",")}` }, "side by side")] : null),
        el("p", { class: "quiet" }, `${row.group}: ${row.goal || row.item}`));
    })));
}

/** Lists all evaluations with their intervals, the newest first. */
function evaluationSection(evaluations, go) {
  const heads = ["Step", "Decoding", "Solved", "95 % interval", "Tasks", "Episodes", "Invalid", "Score", "Turns"];
  const line = (e) => el("tr", {},
    el("th", { scope: "row" }, el("button", { type: "button", class: "plain", on: {
      click: () => go({ view: "episodes", filters: { kind: "eval", from: e.step, to: e.step } }) } }, String(e.step))),
    [e.mode, percent(e.success), intervalWords(e.success_interval), e.tasks, e.episodes, e.invalid, short(e.score_mean), short(e.turns_mean)]
      .map((value, i) => el("td", { "data-label": heads[i + 1] }, String(value))));
  return el("section", { "aria-labelledby": "evaluations-title" },
    el("h3", { id: "evaluations-title" }, "Evaluations"),
    numbersTable(heads, [...evaluations].reverse().map(line)));
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
  const series = panel.series || panel.metrics.map((name, i) => named(name, metrics, panel.labels[i]));
  return chart({ title: panel.title, unit: panel.unit, series, isStacked: panel.stacked, onStep });
}

/** Returns the series of a metric; evaluation metrics have intervals, settings have stairs. */
function named(name, metrics, label = name) {
  const { steps, values, nonfinite } = metrics[name];
  const [low, high] = [metrics[`${name}_low`], metrics[`${name}_high`]];
  const bound = (metric, step) => metric.values[metric.steps.indexOf(step)];
  const intervals = low && high ? steps.filter((step) => low.steps.includes(step) && high.steps.includes(step))
    .map((step) => [step, bound(low, step), bound(high, step)]) : [];
  return { label, steps, values, nonfinite, intervals, isStepped: name.startsWith("horizon/") };
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
