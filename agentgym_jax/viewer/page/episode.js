// One episode: its facts, the list of its turns, and the environment's state next to the turns.

class EpisodeView {
  /** `go` follows a link within the page. */
  constructor(store, go) {
    this.store = store;
    this.go = go;
    this.shade = "logprob";
    this.turn = 0;
    this.element = el("div", { class: "episode", id: "episode", tabindex: "-1" });
  }

  /** Shows an episode; `turn` 0 is its start. */
  async show(i, turn) {
    this.wanted = i;
    const episode = await this.store.episode(i);
    if (this.wanted !== i) return; // another one was asked for meanwhile
    this.episode = episode;
    this.values = new TokenValues(this.store, episode);
    this.draw = worldDrawing(episode);
    this.turn = Math.max(0, Math.min(episode.turns.length, turn || 0));
    this.render();
    this.element.scrollTop = 0;
    if (this.turn) this.select(this.turn, true);
    announce(`${episode.row.goal || episode.row.item}, ${outcomeWords(episode.row.outcome)}, ` +
      `reward ${short(episode.row.reward)}, ${plural(episode.turns.length, "turn")}`);
  }

  render() {
    const { episode } = this;
    this.world = el("aside", { class: "world", "aria-label": "World" });
    this.command = el("div", { class: "replay" });
    this.cards = [this.startCard(), ...episode.turns.map((turn, k) => this.turnCard(turn, k))];
    this.element.replaceChildren(
      this.head(),
      el("div", { class: this.draw ? "body with-world" : "body" },
        el("ol", { class: "turns", "aria-label": "Turns" }, this.cards),
        this.draw ? this.world : null),
    );
    this.mark();
  }

  head() {
    const { row } = this.episode;
    const facts = [
      [row.kind === "eval" ? "evaluation" : "step", row.when.replace(/evaluation |step /, "")],
      ["episode", row.link], ["task", row.item], row.group !== row.environment ? ["group", row.group] : null,
      ["sample", String(row.sample)], ["reward", short(row.reward)],
      this.episode.score !== row.reward ? ["score", short(this.episode.score)] : null,
      this.episode.judge ? ["judge", short(this.episode.judge[0])] : null,
      ["tokens", `${row.tokens} sampled`],
      ["−log p per token", `${short(row.entropy)} nats`],
      this.episode.versions.length ? ["policy of step", this.episode.versions.join(", ")] : null,
      ["duration", `${short(this.episode.seconds)} s`],
      this.episode.attempts > 1 ? ["attempts", String(this.episode.attempts)] : null,
    ].filter(Boolean);
    return el("header", { class: "episode-head" },
      el("h3", {}, row.goal || row.item, " ", outcomeBadge(row.outcome)),
      factList(facts),
      this.episode.error ? el("p", { class: "error" }, this.episode.error) : null,
      this.episode.judge?.[1] ? el("p", { class: "small" }, `Judge: ${this.episode.judge[1]}`) : null,
      el("div", { class: "bar" },
        shadePicker(this.values, this.shade, (shade) => this.setShade(shade)),
        this.siblingLinks(), this.compareButton()),
      shadeLegend(this.values, this.shade), this.command);
  }

  setShade(shade) {
    this.shade = shade;
    const top = this.element.scrollTop;
    this.render();
    this.element.scrollTop = top;
    byId("shade").focus();
  }

  /** Shows the other samples of the task, with which the reward is compared. */
  siblingLinks() {
    const same = this.store.siblings(this.episode.row.i);
    if (same.length < 2) return null;
    return el("span", { class: "siblings", role: "group", "aria-label": "Samples of this task" }, "samples ",
      same.map((k) => {
        const row = this.store.row(k);
        const outcome = outcomeWords(row.outcome);
        return el("a", {
          href: `#episode=${row.link}`, class: row.success ? "sample solved" : "sample",
          "aria-current": k === this.episode.row.i ? "true" : null,
          "aria-label": `sample ${row.sample}: ${outcome}, reward ${short(row.reward)}`,
          title: `${outcome}, reward ${short(row.reward)}`,
        }, String(row.sample));
      }));
  }

  compareButton() {
    const { row } = this.episode;
    const isAlike = (k) => this.store.fileOf[k] !== this.store.fileOf[row.i] && this.store.value("mode", k) === row.mode;
    const others = this.store.sameTask(row.i).filter(isAlike);
    if (!others.length) return null;
    const other = this.store.row(others[others.length - 1]);
    const [a, b] = other.step < row.step ? [other.link, row.link] : [row.link, other.link];
    return el("a", { class: "button", href: `#compare=${a},${b}` }, `Same task in ${plural(others.length, "other episode")}`);
  }

  startCard() {
    const { episode } = this;
    const isMask = this.shade === "mask" && this.episode.pieces.size;
    const last = episode.opening.length - 1;
    const body = isMask
      ? readTokens(episode.runs[0], "prompt", this.episode.pieces)
      : episode.opening.map((message, i) => i === last
        ? foldedText(message.text)
        : el("details", { class: "earlier" },
          el("summary", {}, { system: "System", human: "Instructions", gpt: "Example answer" }[message.from] || message.from),
          el("pre", { class: "text" }, message.text)));
    return this.card(0, "Start", null, body);
  }

  turnCard(turn, k) {
    const badges = [
      failureBadges(turn),
      turn.isCut ? el("span", { class: "badge cut" }, "cut off") : null,
      this.isRepeat(k) ? el("span", { class: "badge cut" }, "repeat") : null,
      turn.reward ? el("span", { class: `badge ${turn.reward > 0 ? "good" : "bad"}` },
        `${turn.reward > 0 ? "+" : ""}${short(turn.reward)}`) : null,
      creditBadge(this.store, this.episode, k),
    ];
    return this.card(k + 1, `Turn ${k + 1}`, badges, [
      el("h5", {}, "Action", turn.action === null ? null : el("code", {}, turn.action)),
      this.actionBody(turn, k),
      turn.observation || this.shade === "mask" ? el("h5", {}, "Observation") : null,
      this.observationBody(turn, k),
    ]);
  }

  isRepeat(k) {
    const { turns } = this.episode;
    const same = (t) => t.action === turns[k].action && t.observation === turns[k].observation;
    return turns[k].action !== null && turns.slice(0, k).some(same);
  }

  actionBody(turn, k) {
    const ids = this.episode.runs[1 + 2 * k];
    if (!this.episode.pieces.size) return el("pre", { class: "text action" }, turn.text);
    let first = 0;
    for (let i = 0; i < k; i++) first += this.episode.runs[1 + 2 * i].length;
    return [
      actionTokens(ids, first, this.values, this.values.missing(this.shade) ? "none" : this.shade, this.episode.pieces),
      tokenTable(ids, first, this.values, this.episode.pieces),
    ];
  }

  observationBody(turn, k) {
    if (this.shade === "mask" && this.episode.pieces.size) {
      const ids = this.episode.runs[2 + 2 * k];
      if (ids.length) return readTokens(ids, "observation", this.episode.pieces);
      return turn.observation ? el("pre", { class: "text unread" }, turn.observation) : null;
    }
    return turn.observation ? foldedText(turn.observation) : null;
  }

  card(number, title, badges, body) {
    return el("li", { class: "card turn", id: `turn-${number}`, tabindex: "-1",
      on: { click: () => this.select(number, false) } },
      el("h4", {}, title, " ", badges), body);
  }

  /** Selects a turn. */
  select(number, isMoved) {
    this.turn = Math.max(0, Math.min(this.cards.length - 1, number));
    this.mark();
    if (isMoved) this.cards[this.turn].scrollIntoView({ block: "nearest" });
    const turn = this.turn ? this.episode.turns[this.turn - 1] : null;
    if (turn) announce(`Turn ${this.turn} of ${this.episode.turns.length}: ${turn.action === null ? "parse error" : turn.action}, ` +
      `reward ${short(turn.reward)}`);
    else announce("Start of the episode");
    const link = `#episode=${this.episode.row.link}${this.turn ? `&turn=${this.turn}` : ""}`;
    if (location.hash !== link) history.replaceState(null, "", link);
  }

  mark() {
    this.cards.forEach((card, k) => {
      card.classList.toggle("current", k === this.turn);
      if (k === this.turn) card.setAttribute("aria-current", "step");
      else card.removeAttribute("aria-current");
    });
    put(this.command, replayCommand(this.store, this.episode, this.turn));
    if (!this.draw) return;
    put(this.world,
      el("h4", {}, this.turn ? `World after turn ${this.turn}` : "World at the start"), this.draw(this.turn),
      this.episode.worlds || this.episode.row.environment !== "babyai" ? null : el("p", { class: "quiet" }, WORLD_NOTE));
  }

  move(by) {
    if (this.episode) this.select(this.turn + by, true);
  }
}

/** Shows that a turn has no valid action, or that the environment rejected it. */
function failureBadges(turn) {
  return [turn.action === null ? el("span", { class: "badge bad" }, "parse error") : null,
    turn.isRejected ? el("span", { class: "badge cut" }, "rejected") : null];
}

const WORLD_NOTE = "The whole grid is drawn for some episodes only (filter: whole world drawn; " +
  "--max_replays sets how many), and for every one with --serve.";
