// Parts that the pages of one run and of two runs share: verdict, intervals, table of task groups.

// Sign and words of a level, for a change of one run and for the difference of two runs.
const CHANGES = { good: ["▲", "clear gain"], bad: ["▼", "clear loss"], open: ["●", "no clear change"] };
const DIFFERENCES = { good: ["▲", "B is better"], bad: ["▼", "A is better"], open: ["●", "no clear difference"] };
const SHOWN_ROWS = 12; // rows of a table before the others are hidden
const FEW_TASKS = 5; // with fewer tasks, an interval of a difference says nothing

/** Formats a difference of shares as whole points with a sign. */
function points(value) {
  const rounded = Math.round(100 * value);
  return rounded > 0 ? `+${rounded}` : String(rounded).replace("-", "−");
}

function wholePercent(value) {
  return value === null || value === undefined ? "–" : `${Math.round(100 * value)} %`;
}

/** Formats an interval of shares; empty if unknown. */
function intervalWords(interval) {
  return interval ? `${Math.round(100 * interval[0])}–${Math.round(100 * interval[1])} %` : "";
}

/** Shows the verdict: a title, one sentence, and one line per decoding mode. `words`: CHANGES or DIFFERENCES. */
function verdictCard(verdict, words, [before, after]) {
  const [sign] = words[verdict.level];
  return el("section", { class: `verdict level-${verdict.level}`, "aria-labelledby": "verdict-title" },
    el("h3", { id: "verdict-title" }, el("span", { class: "sign", "aria-hidden": "true" }, sign), " ", verdict.title),
    el("p", {}, verdict.text),
    verdict.changes.length ? el("ul", { class: "changes" }, verdict.changes.map((change) =>
      changeLine(change, words, before(change), after(change)))) : null);
}

/** Shows the change of one decoding mode: both rates, the difference, and its interval as a drawing. */
function changeLine(change, words, before, after) {
  return el("li", { class: `change level-${change.level}` },
    el("h4", {}, change.mode),
    el("p", { class: "from-to" },
      el("span", {}, el("strong", {}, wholePercent(change.success_a)), el("small", {}, before)),
      el("span", { class: "arrow", "aria-hidden": "true" }, "→"),
      el("span", {}, el("strong", {}, wholePercent(change.success_b)), el("small", {}, after))),
    el("p", { class: "difference" },
      el("strong", {}, `${points(change.difference)} points`),
      change.tasks < FEW_TASKS ? el("small", {}, "too few tasks for an interval") :
        [el("small", {}, `95 % interval ${points(change.interval[0])} to ${points(change.interval[1])}`),
          el("small", {}, `${words[change.level][1]}, p ${change.p_value < 0.001 ? "< 0.001" : `= ${short(change.p_value)}`}`)]),
    change.tasks < FEW_TASKS ? null : differencePlot(change));
}

/** Draws a difference and its interval on an axis from -100 to 100 points. */
function differencePlot(change) {
  const x = (value) => 100 + 96 * value;
  return svg("svg", { class: "difference-plot", viewBox: "0 0 200 34", "aria-hidden": "true" },
    svg("line", { class: "axis", x1: 4, x2: 196, y1: 14, y2: 14 }),
    svg("line", { class: "zero", x1: 100, x2: 100, y1: 3, y2: 25 }),
    svg("line", { class: "range", x1: x(change.interval[0]), x2: x(change.interval[1]), y1: 14, y2: 14 }),
    svg("circle", { class: "point", cx: x(change.difference), cy: 14, r: 4.5 }),
    [["−100", 4, "start"], ["0", 100, "middle"], ["+100", 196, "end"]].map(([text, at, anchor]) =>
      svg("text", { x: at, y: 33, "text-anchor": anchor }, text)));
}

/** Draws success rates with their intervals, one below the other, on an axis from 0 to 100 %. */
function ratePlot(sides) {
  const x = (value) => 4 + 192 * value;
  return svg("svg", { class: "rate-plot", viewBox: "0 0 200 26", "aria-hidden": "true" },
    [0, 0.5, 1].map((value) => svg("line", { class: "axis", x1: x(value), x2: x(value), y1: 1, y2: 25 })),
    sides.map(({ rate, interval, kind }, i) => {
      const y = sides.length === 1 ? 13 : 8 + 10 * i;
      if (rate === null || rate === undefined) return null;
      return [interval ? svg("line", { class: `range ${kind}`, x1: x(interval[0]), x2: x(interval[1]), y1: y, y2: y }) : null,
        svg("circle", { class: `point ${kind}`, cx: x(rate), cy: y, r: 4 })];
    }));
}

/**
 * Shows the success of every task group, with a choice of the decoding mode.
 * results: entries of `verdict.changes`, or of `verdict.results` for one evaluation.
 * words: CHANGES or DIFFERENCES. heads: names of both sides. onGroup(group) shows episodes.
 */
function groupSection(results, words, heads, onGroup) {
  const place = el("div", {});
  const draw = (number) => put(place, groupTable(results[number], words, heads, onGroup));
  draw(0);
  const picker = results.length < 2 ? null : el("span", { class: "switch", role: "group", "aria-label": "Decoding" },
    results.map((result, i) => el("button", { type: "button", "aria-pressed": String(i === 0), on: { click: (event) => {
      draw(i);
      for (const button of event.target.parentElement.children) button.setAttribute("aria-pressed", String(button === event.target));
    } } }, result.mode)));
  return el("section", { class: "groups", "aria-labelledby": "groups-title" },
    el("h3", { id: "groups-title" }, "Task groups ", picker), place);
}

function groupTable(result, words, heads, onGroup) {
  const isPaired = result.difference !== undefined;
  const order = (g) => (g.success_b === null ? -1 : g.success_b);
  const groups = [...result.groups].sort((a, b) => order(b) - order(a) || a.group.localeCompare(b.group));
  const columns = ["Group", "Tasks", ...(isPaired ? heads : ["Solved"]), isPaired ? "Intervals, 0 to 100 %" : "Interval, 0 to 100 %",
    isPaired ? "Difference" : null].filter(Boolean);
  return numbersTable(columns, groups.map((group) => groupRow(group, words, heads, isPaired, onGroup)));
}

/** Shows a table; a long one shows its first rows until a button shows all of them. */
function numbersTable(heads, rows) {
  rows.forEach((row, i) => (row.hidden = i >= SHOWN_ROWS));
  const table = el("table", { class: "numbers-table" },
    tableHead(heads), el("tbody", {}, rows));
  if (rows.length <= SHOWN_ROWS) return table;
  const more = el("button", { type: "button", class: "plain", on: { click: () => {
    rows.forEach((row) => (row.hidden = false));
    more.remove();
  } } }, `Show all ${rows.length}`);
  return [table, more];
}

function groupRow(group, words, heads, isPaired, onGroup) {
  const cell = (label, rate, interval) => el("td", { "data-label": label },
    wholePercent(rate), el("small", {}, ` ${intervalWords(interval)}`));
  const sides = [{ rate: group.success_a, interval: group.interval_a, kind: "before" },
    { rate: group.success_b, interval: group.interval_b, kind: "after" }];
  return el("tr", {},
    el("th", { scope: "row" }, el("button", { type: "button", class: "plain", on: { click: () => onGroup(group.group) } }, group.group)),
    el("td", { "data-label": "Tasks" }, String(group.tasks)),
    isPaired ? cell(heads[0], group.success_a, group.interval_a) : null,
    cell(isPaired ? heads[1] : "Solved", group.success_b, group.interval_b),
    el("td", { class: "plot" }, ratePlot(isPaired ? sides : sides.slice(1))),
    isPaired ? el("td", { "data-label": "Difference", class: `level-${group.level}` },
      el("strong", {}, points(group.difference)),
      group.tasks < FEW_TASKS ? null : el("small", {}, ` ${points(group.interval[0])} to ${points(group.interval[1])} `),
      group.level === "open" ? null : el("span", { class: "sign", "aria-hidden": "true" }, words[group.level][0]),
      group.level === "open" ? null : el("span", { class: "unseen" }, words[group.level][1])) : null);
}
