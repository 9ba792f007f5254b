// Views, links, keyboard shortcuts, colour scheme, and updates of a live run.

const VIEWS = ["overview", "episodes", "compare", "config"];
const POLL_MS = 2000;
const KEYS = [
  ["j / k, ↓ / ↑", "next and previous episode"], ["n / p, → / ←", "next and previous turn"],
  ["/", "search"], ["s", "next shading of the tokens"], ["o, e, c, g", "overview, episodes, compare, config"],
  ["t", "light, dark, or as the system"], ["Esc", "out of a field"], ["?", "these keys"],
];

/** `#episode=step_000001/3&turn=2` -> {episode: "step_000001/3", turn: "2"}; `#overview` -> {overview: ""}. */
function readHash() {
  const parts = location.hash.slice(1).split("&").filter(Boolean);
  return Object.fromEntries(parts.map((part) => {
    const [key, ...value] = part.split("=");
    return [key, decoded(value.join("="))];
  }));
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // a half-typed % in a link
  }
}

class App {
  constructor(index) {
    this.filters = { ...NO_FILTERS };
    this.use(new Store(index));
    addEventListener("hashchange", () => this.route());
    addEventListener("keydown", (event) => this.onKey(event));
    this.route();
    byId("loading").hidden = true;
    if (isLive) this.followRun();
  }

  /** Shows newer data of the run without changing the current view. */
  use(store) {
    this.store = store;
    const go = (target) => this.go(target);
    const shade = this.episode ? this.episode.shade : null;
    this.episode = new EpisodeView(store, go);
    if (shade) this.episode.shade = shade;
    this.list = new EpisodeList(store, (i) => this.go({ episode: this.store.row(i).link }));
    this.compare = new CompareView(store, go);
    this.count = el("p", { class: "count", role: "status" });
    byId("episodes").replaceChildren(
      el("h2", { id: "episodes-title", class: "unseen" }, "Episodes"),
      filterForm(store, this.filters, (filters) => this.setFilters(filters)),
      el("div", { class: "panes" }, el("div", { class: "side" }, this.count, this.list.element), this.episode.element));
    if (store.index.comparison) showComparison(store, go);
    else showOverview(store, go);
    showConfig(store.index);
    this.setFilters(this.filters);
    put(byId("phone-bar"), this.filterButton(), this.turnButtons());
    if (store.index.runs) document.body.dataset.pair = "";
    document.documentElement.dataset.ready = String(store.count);
  }

  /** Creates the button that shows the filters on a phone. */
  filterButton() {
    const button = el("button", { type: "button", class: "filter-toggle", "aria-expanded": "false", on: { click: () => {
      const isOpen = byId("episodes").classList.toggle("filtering");
      button.setAttribute("aria-expanded", String(isOpen));
    } } }, "Filters");
    return button;
  }

  /** Creates the controls of an open episode on a phone: back to the list, previous and next turn. */
  turnButtons() {
    const button = (label, words, onClick) => el("button", { type: "button", "aria-label": words, on: { click: onClick } }, label);
    return el("div", { class: "turn-buttons", role: "group", "aria-label": "Episode" },
      el("a", { class: "button to-list", href: "#episodes" }, "‹ List"),
      button("‹ Turn", "Previous turn", () => this.turns(-1)), button("Turn ›", "Next turn", () => this.turns(1)));
  }

  setFilters(filters) {
    this.filters = { ...NO_FILTERS, ...filters };
    const found = filtered(this.store, this.filters);
    const chosen = this.episode.episode ? this.episode.episode.row.i : -1;
    this.list.show(found, chosen);
    this.count.textContent = `${found.length.toLocaleString("en")} of ${plural(this.store.count, "episode")}`;
  }

  /** Follows a link within the page: {view, filters}, {episode}, {compare: [a, b]}. */
  go(target) {
    if (target.filters) {
      setForm(byId("episodes").querySelector("form"), target.filters);
      this.setFilters(target.filters);
    }
    if (target.episode) location.hash = `episode=${target.episode}`;
    else if (target.compare) location.hash = `compare=${target.compare.join(",")}`;
    else location.hash = target.view;
  }

  route() {
    const hash = readHash();
    const view = "episode" in hash ? "episodes" : VIEWS.find((name) => name in hash) || "overview";
    for (const name of VIEWS) byId(name).hidden = name !== view;
    document.querySelectorAll("nav a").forEach((link) => {
      if (link.dataset.view === view) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    });
    document.body.dataset.view = view;
    document.body.dataset.pane = "episode" in hash ? "episode" : "list"; // the part that a phone shows
    if (view === "compare") this.shown(this.compare.show((hash.compare || "").split(",").filter(Boolean)));
    if (view === "episodes") this.showEpisode(hash);
  }

  showEpisode(hash) {
    let i = this.store.find(hash.episode);
    if (i < 0 && hash.episode) announce(`This run has no episode ${hash.episode}`);
    if (i < 0) i = this.episode.episode ? this.episode.episode.row.i : this.list.items.length ? this.list.items[0] : -1;
    if (i < 0) return;
    this.list.mark(i);
    this.shown(this.episode.show(i, Number(hash.turn) || 0));
  }

  /** Shows an error that occurred while data were read. */
  shown(promise) {
    promise.catch((error) => {
      byId("loading").hidden = false;
      byId("loading").textContent = `Could not show this: ${error.message}`;
    });
  }

  onKey(event) {
    const field = event.target.closest("input, select, textarea");
    if (event.key === "Escape" && field) return field.blur();
    if (field || event.ctrlKey || event.metaKey || event.altKey || byId("help-dialog").open) return undefined;
    const isEpisodes = !byId("episodes").hidden;
    const action = {
      j: () => isEpisodes && this.list.move(1), ArrowDown: () => isEpisodes && this.list.move(1),
      k: () => isEpisodes && this.list.move(-1), ArrowUp: () => isEpisodes && this.list.move(-1),
      n: () => this.turns(1), ArrowRight: () => this.turns(1), p: () => this.turns(-1), ArrowLeft: () => this.turns(-1),
      s: () => isEpisodes && this.nextShade(),
      "/": () => this.search(),
      "?": () => byId("help-dialog").showModal(),
      o: () => this.go({ view: "overview" }),
      e: () => this.go({ view: "episodes" }),
      c: () => this.go({ view: "compare" }),
      g: () => this.go({ view: "config" }),
      t: nextTheme,
    }[event.key];
    if (!action || event.target.closest("pre[tabindex]") && event.key.startsWith("Arrow")) return undefined;
    if (action() !== false) event.preventDefault();
    return undefined;
  }

  /** Moves to another turn in the current view; returns false if the view has no turns. */
  turns(by) {
    if (!byId("episodes").hidden) return this.episode.move(by);
    return byId("compare").hidden ? false : this.compare.move(by);
  }

  nextShade() {
    if (!this.episode.episode) return;
    const all = Object.keys(SHADES).filter((shade) => !this.episode.values.missing(shade));
    this.episode.setShade(all[(all.indexOf(this.episode.shade) + 1) % all.length]);
    byId("shade").blur();
    announce(`Shaded by ${SHADES[this.episode.shade].title}`);
  }

  search() {
    if (byId("episodes").hidden) this.go({ view: "episodes" });
    setTimeout(() => byId("filter-text").focus()); // after the view is shown
  }

  /** Requests the version of the run's data, and updates the page if it has changed. */
  async followRun() {
    const sign = byId("live");
    sign.hidden = false;
    for (;;) {
      sign.textContent = "live";
      try {
        const version = await (await fetch("version", { cache: "no-store" })).text();
        if (version !== this.store.index.version) {
          this.use(new Store(await loadDocument("index")));
          this.route();
        }
        sign.classList.remove("lost");
      } catch {
        sign.textContent = "server gone";
        sign.classList.add("lost");
      }
      await new Promise((done) => setTimeout(done, POLL_MS));
    }
  }
}

const THEMES = { auto: "Auto", light: "Light", dark: "Dark" };

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  const button = byId("theme");
  button.textContent = THEMES[theme];
  button.setAttribute("aria-label", `${THEMES[theme]} colours`);
  try {
    localStorage.setItem("agentgym-theme", theme);
  } catch {
    // Some browsers have no storage for local files; the choice is then lost on reload.
  }
}

function nextTheme() {
  const names = Object.keys(THEMES);
  setTheme(names[(names.indexOf(document.documentElement.dataset.theme) + 1) % names.length]);
}

function savedTheme() {
  try {
    const saved = localStorage.getItem("agentgym-theme");
    return saved in THEMES ? saved : "auto";
  } catch {
    return "auto";
  }
}

function fillHelp() {
  const dialog = byId("help-dialog");
  dialog.append(
    el("h2", { id: "help-title" }, "Keys"),
    el("dl", {}, KEYS.map(([keys, words]) => el("div", {}, el("dt", {}, el("kbd", {}, keys)), el("dd", {}, words)))),
    el("p", { class: "quiet" }, "The address of the page always names the episode and turn in sight: copy it to share them."),
    el("button", { type: "button", on: { click: () => dialog.close() } }, "Close"));
  byId("help").addEventListener("click", () => dialog.showModal());
  byId("theme").addEventListener("click", nextTheme);
  byId("skip").addEventListener("click", (event) => {
    event.preventDefault(); // the hash names the view
    byId("main").focus();
  });
}

setTheme(savedTheme());
fillHelp();
loadDocument("index").then((index) => new App(index)).catch((error) => {
  byId("loading").textContent = `This run cannot be shown: ${error.message}`;
});
