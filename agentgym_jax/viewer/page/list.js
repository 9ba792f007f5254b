// Virtual list: the document contains only the visible lines.

const LINE = 54; // pixels, as in style.css
const BEYOND = 8; // lines kept above and below what is seen

class EpisodeList {
  /** `onChoose(number)` is called with the number of the chosen episode. */
  constructor(store, onChoose) {
    this.store = store;
    this.onChoose = onChoose;
    this.items = [];
    this.at = -1;
    this.lines = new Map();
    this.space = el("div", { class: "space", role: "presentation" });
    this.element = el("div", {
      class: "list", role: "listbox", tabindex: "0", id: "episode-list", "aria-label": "Episodes",
      on: { scroll: () => this.draw(), keydown: (event) => this.onKey(event) },
    }, this.space);
    this.space.addEventListener("click", (event) => {
      const line = event.target.closest("[data-at]");
      if (line) this.choose(Number(line.dataset.at));
    });
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  /** Shows these episodes; keeps the chosen one if it is among them. */
  show(items, chosen) {
    this.items = items;
    this.space.style.setProperty("height", `${items.length * LINE}px`);
    if (!items.includes(chosen)) this.element.scrollTop = 0;
    this.mark(chosen);
  }

  /** Marks an episode as the chosen one. */
  mark(episode) {
    this.at = this.items.indexOf(episode);
    this.lines.clear();
    this.space.replaceChildren();
    if (this.at >= 0) this.reveal();
    this.draw();
  }

  choose(at) {
    if (!this.items.length) return;
    this.mark(this.items[Math.max(0, Math.min(this.items.length - 1, at))]);
    this.onChoose(this.items[this.at]);
  }

  move(by) {
    this.choose(this.at < 0 ? 0 : this.at + by);
  }

  reveal() {
    const [top, bottom] = [this.at * LINE, (this.at + 1) * LINE];
    const box = this.element;
    if (top < box.scrollTop) box.scrollTop = top;
    else if (bottom > box.scrollTop + box.clientHeight) box.scrollTop = bottom - box.clientHeight;
  }

  onKey(event) {
    const page = Math.max(1, Math.floor(this.element.clientHeight / LINE) - 1);
    const jumps = { PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (!(event.key in jumps) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.choose(this.at + jumps[event.key]);
  }

  draw() {
    const { scrollTop, clientHeight } = this.element;
    const first = Math.max(0, Math.floor(scrollTop / LINE) - BEYOND);
    const last = Math.min(this.items.length, Math.ceil((scrollTop + clientHeight) / LINE) + BEYOND);
    for (const [at, line] of this.lines) {
      if (at < first || at >= last) {
        line.remove();
        this.lines.delete(at);
      }
    }
    for (let at = first; at < last; at++) {
      if (this.lines.has(at)) continue;
      const line = this.line(at);
      this.lines.set(at, line);
      this.space.append(line);
    }
    if (this.at >= 0 && this.lines.has(this.at)) this.element.setAttribute("aria-activedescendant", `line-${this.at}`);
    else this.element.removeAttribute("aria-activedescendant");
  }

  line(at) {
    const row = this.store.row(this.items[at]);
    const isChosen = at === this.at;
    return el("div", {
      class: isChosen ? "line chosen" : "line", role: "option", id: `line-${at}`, "data-at": at,
      "aria-selected": String(isChosen), "aria-setsize": this.items.length, "aria-posinset": at + 1,
      vars: { top: `${at * LINE}px` },
    },
      el("span", { class: "goal" }, row.goal || row.item),
      el("span", { class: "reward" }, short(row.reward)),
      el("span", { class: "about" },
        `${row.when} · ${row.item}` +
        `${row.sample ? ` #${row.sample}` : ""} · ${plural(row.turns, "turn")}`),
      outcomeBadge(row.outcome),
    );
  }
}
