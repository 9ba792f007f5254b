// Creates elements. Texts of models and environments are untrusted: they become text nodes, and
// nothing in these files parses HTML.

const SVG = "http://www.w3.org/2000/svg";

/** Creates an element. `properties`: `on` (event -> listener), `vars` (CSS variables), else attributes. */
function el(tag, properties, ...children) {
  return filled(document.createElement(tag), properties, children);
}

/** Creates an SVG element, with the arguments of `el`. */
function svg(tag, properties, ...children) {
  return filled(document.createElementNS(SVG, tag), properties, children);
}

function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (name === "vars") {
      for (const [key, v] of Object.entries(value)) element.style.setProperty(key, v);
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  element.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
  return element;
}

/** Replaces the children of an element; lists are flattened and empty entries left out, as in `el`. */
function put(element, ...children) {
  element.replaceChildren();
  return filled(element, null, children);
}

function byId(id) {
  return document.getElementById(id);
}

/** Shows pairs of a name and a value as a list of facts. */
function factList(pairs, kind = "facts small") {
  return el("dl", { class: kind }, pairs.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

/** Announces a change to screen readers. */
function announce(text) {
  byId("announcer").textContent = text;
}

/** Formats a number with three digits and without trailing zeros. */
function short(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-3) return value.toExponential(1).replace("e+", "e");
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(3)));
}

function percent(value) {
  return value === null || value === undefined ? "–" : `${short(100 * value)} %`;
}

/** Formats a number in the unit of a metric. */
function inUnit(value, unit) {
  return unit && (unit.startsWith("share") || unit === "fraction") ? percent(value) : short(value);
}

function plural(count, one, many) {
  return `${count.toLocaleString("en")} ${count === 1 ? one : many || one + "s"}`;
}

const OUTCOMES = {
  success: ["solved", "good"],
  failure: ["failed", "bad"],
  horizon: ["out of turns", "cut"],
  context_full: ["out of tokens", "cut"],
  parse_errors: ["parse error", "bad"],
  env_error: ["environment error", "broken"],
  program_error: ["program error", "broken"],
  judge_error: ["judge error", "broken"],
  aborted: ["stopped", "broken"],
};

function outcomeWords(outcome) {
  return (OUTCOMES[outcome] || [outcome])[0];
}

/** Shows the outcome of an episode as text and shape, not by colour alone. */
function outcomeBadge(outcome) {
  const [, kind] = OUTCOMES[outcome] || [outcome, "cut"];
  return el("span", { class: `badge ${kind}` }, outcomeWords(outcome));
}

const FOLDED = { lines: 14, characters: 800 };

/** Shows a text; a long one is folded below its first lines until a button unfolds it. */
function foldedText(text, kind = "text") {
  const box = el("pre", { class: kind }, text);
  const lines = text.split("\n").length;
  if (lines <= FOLDED.lines && text.length <= FOLDED.characters) return box;
  box.classList.add("folded");
  const words = `Show all ${lines > FOLDED.lines ? plural(lines, "line") : plural(text.length, "character")}`;
  const button = el("button", { type: "button", class: "plain unfold", "aria-expanded": "false", on: { click: () => {
    const isFolded = box.classList.toggle("folded");
    button.setAttribute("aria-expanded", String(!isFolded));
    button.textContent = isFolded ? words : "Show less";
  } } }, words);
  return [box, button];
}
