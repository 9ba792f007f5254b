// Chooses the drawing of the environment's state for an episode.

const IMAGE = /^data:image\/(png|jpeg|webp);base64,[A-Za-z0-9+/=]+$/;

/** Returns a function from the number of turns to a drawing; null if no state is known. */
function worldDrawing(episode) {
  const { worlds, turns } = episode;
  const first = openingText(episode);
  const textAt = (at) => (at === 0 ? first : turns[at - 1].observation);
  if (worlds && worlds[0].grid && worlds[0].facing) return (at) => babyaiGrid(worlds, at);
  if (worlds) return (at) => plainWorld(worlds[at]);
  if (/Available actions: \[/.test(first) && /steps|wall|objects/.test(first)) {
    return (at) => babyaiView(lastTold(episode, at, textAt));
  }
  const task = textcraftTask(first);
  if (task) return (at) => textcraftWorld(task, turns, at);
  if (/This (room|outside location) is called/.test(first)) {
    const texts = [first, ...turns.map((t) => `${t.action || ""}\n${t.observation}`)];
    const walk = roomWalk(texts);
    return (at) => sciworldWorld(walk[at]);
  }
  return null;
}

/** Returns the last text that describes the view; the text of a rejected action does not. */
function lastTold(episode, at, textAt) {
  for (let i = at; i > 0; i--) if (/The room has walls|You cannot see any/.test(textAt(i))) return textAt(i);
  return textAt(0);
}

/** Returns the first observation: the last user message before the agent's first answer. */
function openingText(episode) {
  const told = episode.opening.filter((message) => message.from === "human");
  return told.length ? told[told.length - 1].text : "";
}

/** Draws any other state: its picture or page if present, its drawing in characters, and facts. */
function plainWorld(state) {
  const parts = [];
  if (state.url) {
    parts.push(el("p", { class: "url" }, state.title ? el("strong", {}, state.title) : null, state.title ? " · " : null, state.url));
  }
  if (typeof state.screenshot === "string" && IMAGE.test(state.screenshot)) {
    parts.push(el("img", { class: "screenshot", src: state.screenshot, alt: `Screenshot of ${state.title || state.url || "the page"}` }));
  }
  if (state.page) parts.push(el("h4", {}, "Page as text"), scrolled("page", "Text of the page", state.page));
  const drawing = Array.isArray(state.grid) ? state.grid.join("\n") : state.grid;
  if (typeof drawing === "string") parts.push(scrolled("drawing", "Drawing of the world", drawing));
  const known = ["screenshot", "url", "title", "page", "grid", "data_idx"];
  const facts = Object.entries(state).filter(([key, value]) => !known.includes(key) && factText(value) !== "");
  parts.push(factList(facts.map(([key, value]) => [key.replaceAll("_", " "), factText(value)])));
  return parts;
}

/** Creates a text box that can be scrolled with the keyboard. */
function scrolled(kind, label, text) {
  return el("pre", { class: kind, role: "region", tabindex: "0", "aria-label": label }, text);
}

/** Returns a fact as one line; empty without a value. */
function factText(value) {
  if (value === null) return "";
  if (Array.isArray(value)) return value.map(factText).join(", ");
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
