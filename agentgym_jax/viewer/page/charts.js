// Line charts in SVG.

const CHART = { width: 420, height: 220, left: 52, right: 12, top: 10, bottom: 28 };

/** Returns round numbers that divide a range into about `count` parts. */
function ticks(low, high, count) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
  const found = [];
  for (let t = Math.ceil(low / step - 1e-9) * step; t <= high + step * 1e-9; t += step) {
    found.push(Number(t.toPrecision(12)));
  }
  return found;
}

/** Returns the scale from values to pixels; `isLog` if all values are positive and span many decades. */
function scale(low, high, from, to, isLog) {
  const f = isLog ? Math.log10 : (x) => x;
  const [a, b] = [f(low), f(high)];
  return (x) => from + ((f(x) - a) / (b - a || 1)) * (to - from);
}

function extent(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const v of values) {
    if (v < low) low = v;
    if (v > high) high = v;
  }
  return [low, high];
}

function verticalRange(series, unit) {
  const values = series.flatMap((s) => s.values.concat((s.intervals || []).flatMap(([, lower, upper]) => [lower, upper])));
  if (!values.length) return { low: 0, high: 1, isLog: false };
  let [low, high] = extent(values);
  const isLog = low > 0 && high / low > 500;
  if (isLog) return { low, high, isLog };
  if (low > 0 && low < high * 0.7) low = 0;
  if (unit && unit.startsWith("share")) [low, high] = [0, high > 0.4 || high === 0 ? Math.max(1, high) : high * 1.1];
  if (low === high) [low, high] = [low - Math.abs(low || 1) * 0.5, high + Math.abs(high || 1) * 0.5];
  return { low, high, isLog };
}

/** Returns cumulative sums of the series, for stacked areas. */
function stacked(series) {
  const sums = new Array(series[0].values.length).fill(0);
  return series.map((s) => {
    const base = sums.slice();
    s.values.forEach((v, i) => (sums[i] += v));
    return { ...s, base, values: sums.slice() };
  });
}

/** Returns a line through points, interrupted between two points if one of the steps `gaps` lies there. */
function path(steps, values, x, y, gaps = []) {
  const isApart = (i) => i === 0 || gaps.some((gap) => steps[i - 1] < gap && gap < steps[i]);
  return steps.map((s, i) => `${isApart(i) ? "M" : "L"}${x(s).toFixed(1)} ${y(values[i]).toFixed(1)}`).join("");
}

function areaPath(s, x, y) {
  const back = s.steps.map((_, i) => s.steps.length - 1 - i);
  const lower = back.map((i) => `L${x(s.steps[i]).toFixed(1)} ${y(s.base[i]).toFixed(1)}`).join("");
  return `${path(s.steps, s.values, x, y)}${lower}Z`;
}

/**
 * Draws a figure with axes, a legend, and the values at the pointer.
 * series: [{label, steps, values, nonfinite}]; `nonfinite` has steps without a finite value.
 * onStep is called with the clicked step.
 */
function chart({ title, unit, series: given, isStacked, onStep }) {
  const series = paired(given);
  const shown = isStacked ? stacked(series) : series;
  const { width, height, left, right, top, bottom } = CHART;
  const [first, last] = extent(series.flatMap(stepsOf));
  const range = verticalRange(shown, isStacked ? "share" : unit);
  const x = scale(first, last === first ? first + 1 : last, left, width - right);
  const y = scale(range.low, range.high, height - bottom, top, range.isLog);
  const cursor = svg("line", { class: "cursor", y1: top, y2: height - bottom, visibility: "hidden" });
  const drawing = svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": spoken(title, unit, series) },
    axes(range, [first, last], x, y, unit, isStacked),
    isStacked
      ? shown.map((s, i) => svg("path", { class: `area c${i % 8}`, d: areaPath(s, x, y) })).reverse()
      : shown.map((s, i) => [curve(s, i, x, y), crosses(s, i, x, height - bottom - 6)]),
    cursor,
  );
  const readout = el("p", { class: "readout", "aria-hidden": "true" });
  const figure = el(
    "figure",
    { class: "chart" },
    el("figcaption", {}, title, el("span", { class: "unit" }, unit)),
    drawing,
    legend(series),
    readout,
  );
  follow({ drawing, readout, cursor, series, x, unit: isStacked ? "share" : unit, onStep });
  return figure;
}

/** Draws a curve: steps for a setting such as the turn limit, else lines with dots and intervals. */
function curve(s, i, x, y) {
  const colour = colourOf(s, i);
  if (s.isStepped) return svg("path", { class: `line stepped ${colour}`, d: stairs(s, x, y) });
  const line = svg("path", { class: `line${s.isDashed ? " dashed" : ""} ${colour}`, d: path(s.steps, s.values, x, y, s.nonfinite) });
  if (s.steps.length > 30) return line;
  const dots = s.steps.map((t, k) => svg("circle", { class: `dot ${colour}`, cx: x(t), cy: y(s.values[k]), r: 2.5 }));
  const bars = (s.intervals || []).map(([step, low, high]) =>
    svg("line", { class: `bar ${colour}`, x1: x(step), x2: x(step), y1: y(low), y2: y(high) }));
  return [line, bars, dots];
}

/** Gives a series such as `maze, greedy` the colour of the series `maze`, and dashes. */
function paired(series) {
  const places = new Map(series.map((s, i) => [s.label, i]));
  return series.map((s) => {
    const partner = places.get(s.label.replace(/, [^,]*$/, ""));
    return partner === undefined || series[partner] === s ? s : { ...s, colour: partner, isDashed: true };
  });
}

function colourOf(s, i) {
  return `c${(s.colour === undefined ? i : s.colour) % 8}`;
}

/** Returns a line that changes half-way between two steps, because a setting has no values in between. */
function stairs({ steps, values }, x, y) {
  const parts = steps.map((step, k) => {
    const from = k ? (steps[k - 1] + step) / 2 : step;
    const to = k + 1 < steps.length ? (step + steps[k + 1]) / 2 : step;
    return `${k ? "L" : "M"}${x(from).toFixed(1)} ${y(values[k]).toFixed(1)}H${x(to).toFixed(1)}`;
  });
  return parts.join("");
}

/** Returns the steps at which a series has a value, finite or not. */
function stepsOf(s) {
  return s.steps.concat(s.nonfinite || []);
}

/** Draws crosses at the bottom of the figure at steps with a value that is not finite. */
function crosses(s, i, x, y) {
  return (s.nonfinite || []).map((step) => svg("path", {
    class: `line nonfinite ${colourOf(s, i)}`, d: `M${x(step) - 4} ${y - 4}l8 8M${x(step) + 4} ${y - 4}l-8 8` }));
}

function axes(range, [first, last], x, y, unit, isStacked) {
  const { width, height, left, right, bottom } = CHART;
  const vertical = range.isLog ? logTicks(range) : ticks(range.low, range.high, 4);
  const lines = vertical.map((t) => [
    svg("line", { class: "grid", x1: left, x2: width - right, y1: y(t), y2: y(t) }),
    svg("text", { class: "tick", x: left - 6, y: y(t) + 3.5, "text-anchor": "end" },
      inUnit(t, isStacked ? "share" : unit)),
  ]);
  const steps = ticks(first, Math.max(last, first + 1), 6).filter((t) => Number.isInteger(t) && t <= last);
  const labels = steps.map((t) =>
    svg("text", { class: "tick", x: x(t), y: height - bottom + 16, "text-anchor": "middle" }, String(t)));
  return svg("g", { "aria-hidden": "true" }, lines, labels);
}

function logTicks({ low, high }) {
  const found = [];
  for (let p = Math.ceil(Math.log10(low)); p <= Math.log10(high); p++) found.push(10 ** p);
  return found.length > 6 ? found.filter((_, i) => i % 2 === 0) : found;
}

function legend(series) {
  return el("ul", { class: "legend" }, series.map((s, i) =>
    el("li", {}, el("span", { class: `swatch${s.isDashed ? " dashed" : ""} ${colourOf(s, i)}`, "aria-hidden": "true" }), s.label,
      (s.nonfinite || []).length ? ` (× ${notFinite(s)})` : null)));
}

function notFinite(s) {
  return `not finite at ${plural(s.nonfinite.length, "step")}`;
}

/** Returns the figure's description for screen readers. */
function spoken(title, unit, series) {
  const parts = series.map((s) => {
    const end = s.values.length - 1;
    const ends = end < 0 ? [] : [`${inUnit(s.values[0], unit)} at step ${s.steps[0]}`,
      `${inUnit(s.values[end], unit)} at step ${s.steps[end]}`];
    return `${s.label}: ${ends.concat((s.nonfinite || []).length ? notFinite(s) : []).join(", ")}`;
  });
  return `${title}. ${parts.join("; ")}.`;
}

function nearest(steps, wanted) {
  let best = 0;
  steps.forEach((s, i) => {
    if (Math.abs(s - wanted) < Math.abs(steps[best] - wanted)) best = i;
  });
  return best;
}

function follow({ drawing, readout, cursor, series, x, unit, onStep }) {
  const all = [...new Set(series.flatMap(stepsOf))].sort((a, b) => a - b);
  const valueAt = (s, step) =>
    s.steps.includes(step) ? inUnit(s.values[s.steps.indexOf(step)], unit) : "not finite";
  const stepAt = (event) => {
    const box = drawing.getBoundingClientRect();
    const place = ((event.clientX - box.left) / box.width) * CHART.width;
    return all[nearest(all.map(x), place)];
  };
  drawing.addEventListener("pointermove", (event) => {
    const step = stepAt(event);
    cursor.setAttribute("x1", x(step));
    cursor.setAttribute("x2", x(step));
    cursor.setAttribute("visibility", "visible");
    const values = series
      .filter((s) => stepsOf(s).includes(step))
      .map((s) => `${s.label} ${valueAt(s, step)}`);
    readout.textContent = `step ${step}: ${values.join(" · ")}`;
  });
  drawing.addEventListener("pointerleave", () => {
    cursor.setAttribute("visibility", "hidden");
    readout.textContent = "";
  });
  if (onStep) drawing.addEventListener("click", (event) => onStep(stepAt(event)));
}

/** Draws a curve without axes, for the panel of early warnings. */
function sparkline(points) {
  const [width, height] = [250, 40];
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "spark", "aria-hidden": "true" });
  if (points.length < 2) return drawing;
  const steps = points.map((p) => p[0]);
  const [low, high] = extent(points.map((p) => p[1]));
  const x = scale(steps[0], steps[steps.length - 1], 2, width - 3);
  const y = scale(Math.min(0, low), high || 1, height - 3, 3);
  const end = points[points.length - 1];
  drawing.append(
    svg("path", { class: "line c0", d: path(steps, points.map((p) => p[1]), x, y) }),
    svg("circle", { class: "dot c0", cx: x(end[0]), cy: y(end[1]), r: 2.5 }),
  );
  return drawing;
}
