// Overview of the page that compares two runs, A and B.

const MAX_PAIRS = 6; // task links shown before the others are folded

function showComparison(store, go) {
  const { index } = store;
  const { verdict, tasks } = index.comparison;
  const onStep = (step) => go({ view: "episodes", filters: { from: step, to: step } });
  put(
    byId("overview"),
    el("h2", { id: "overview-title", class: "unseen" }, "Comparison"),
    verdictCard(verdict, DIFFERENCES, [(c) => `A, step ${c.step_a}`, (c) => `B, step ${c.step_b}`]),
    el("ul", { class: "runs" }, index.runs.map((run, i) => runCard(run, i))),
    verdict.changes.length
      ? groupSection(verdict.changes, DIFFERENCES, ["A", "B"], (group) => go({ view: "episodes", filters: { kind: "eval", group } })) : null,
    tasks.length ? taskSection(store, tasks) : null,
    el("h3", {}, "Config differences ", el("span", { class: "quiet" }, `${index.comparison.config.length} keys`)),
    index.comparison.config.length
      ? plainTable(index.comparison.config, ["Key", "A", "B"]) : el("p", { class: "quiet" }, "The configs are the same."),
    el("h3", {}, "Curves"),
    el("div", { class: "charts" }, sharedCharts(index.runs, onStep)),
  );
}

function runCard(run, i) {
  return el("li", { class: `card run run-${"ab"[i]}` },
    el("h4", {}, el("span", { class: "letter" }, "AB"[i]), " ", run.name),
    factList(run.facts.concat(run.cost)));
}

/** Links the tasks that only one run solves to the side-by-side view. */
function taskSection(store, tasks) {
  const lists = tasks.map((mode) => el("div", { class: "task-lists" },
    [["gained", 0, "B does better"], ["lost", 1, "A does better"]].map(([key, at, title]) => el("div", {},
      el("h4", {}, `${title}: ${plural(mode.counts[at], "task")}`, el("span", { class: "quiet" }, ` of ${mode.tasks}, ${mode.mode}`)),
      pairLinks(store, mode[key])))));
  return el("section", { "aria-labelledby": "tasks-title" }, el("h3", { id: "tasks-title" }, "Tasks with different results"), lists);
}

function pairLinks(store, pairs) {
  const line = ([a, b]) => {
    const [left, right] = [store.row(a), store.row(b)];
    return el("li", {}, el("a", { href: `#compare=${left.link},${right.link}` }, left.goal || left.item),
      el("small", {}, ` ${left.group} · A ${outcomeWords(left.outcome)}, B ${outcomeWords(right.outcome)}`));
  };
  if (!pairs.length) return el("p", { class: "quiet" }, "none");
  return [
    el("ul", { class: "links" }, pairs.slice(0, MAX_PAIRS).map(line)),
    pairs.length > MAX_PAIRS ? el("details", {}, el("summary", {}, `${pairs.length - MAX_PAIRS} more`),
      el("ul", { class: "links" }, pairs.slice(MAX_PAIRS).map(line))) : null,
  ];
}

/** Draws every metric of the figures once, with a curve per run; the table above has the task groups. */
function sharedCharts(runs, onStep) {
  const found = new Map();
  runs.forEach((run, i) => run.panels.filter((panel) => panel.metrics && panel.file !== "groups").forEach((panel) => {
    panel.metrics.forEach((name, k) => {
      if (!found.has(name)) found.set(name, { title: panel.title, label: panel.labels[k], unit: panel.unit, series: [] });
      found.get(name).series.push({ ...named(name, run.metrics, "AB"[i]), colour: i === 0 ? 0 : 3 });
    });
  }));
  const all = [...found.values()];
  return all.map(({ title, label, unit, series }) => {
    const isAlone = all.filter((other) => other.title === title).length === 1;
    return chart({ title: isAlone ? title : `${title}: ${label}`, unit, series, onStep });
  });
}
