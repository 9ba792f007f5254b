// Tokens as they were sampled and trained on, shaded by a value such as the log-probability.

const SHADES = {
  none: { title: "no shading" },
  mask: { title: "mask", words: "trained on (sampled by the policy) · prompt · observation" },
  logprob: { title: "log-probability", words: "the stronger the shade, the less likely the token was as sampled" },
  advantage: { title: "advantage", words: "blue: made more likely · orange: made less likely" },
  credit: { title: "counterfactual credit", words: "blue: raises the success rate · orange: lowers it" },
  kl: { title: "KL from the reference", words: "blue: more likely than under the reference · orange: less" },
  gap: { title: "sampler-learner gap", words: "the stronger the shade, the more the two disagree" },
};

/** Returns the texts of tokens; a character that spans several tokens belongs to the last of them. */
function tokenTexts(ids, pieces) {
  const decoder = new TextDecoder("utf-8");
  return ids.map((id, i) => {
    const piece = pieces.get(id);
    if (piece === undefined) return `⟨${id}⟩`;
    const bytes = Uint8Array.from(piece, (character) => character.charCodeAt(0));
    return decoder.decode(bytes, { stream: i + 1 < ids.length });
  });
}

/** Returns the reward minus its group's mean, as an estimate if no advantages were recorded. */
function groupAdvantage(store, i) {
  const rewards = store.siblings(i).map((k) => store.columns.reward[k]);
  const mean = rewards.reduce((a, b) => a + b, 0) / rewards.length;
  return { value: store.columns.reward[i] - mean, samples: rewards.length, mean };
}

/** Values of the episode's sampled tokens for the shadings, one number per token. */
class TokenValues {
  constructor(store, episode) {
    const nats = (values) => values && values.map((v) => v / 1000);
    this.logprob = nats(episode.logprobs);
    this.isHeldOut = episode.row.kind === "eval";
    this.group = groupAdvantage(store, episode.row.i);
    this.isRecorded = Boolean(episode.advantages);
    this.advantage = nats(episode.advantages) || this.logprob.map(() => this.group.value);
    this.credit = tokenCredits(store, episode);
    const difference = (key) =>
      episode[key] && this.logprob.map((v, i) => v - episode[key][i] / 1000);
    this.kl = difference("reference_logprobs") || null;
    this.gap = difference("learner_logprobs") || null;
    // the values besides the log-probabilities that are known, with their names
    this.known = [["advantage", "advantage"], ["credit", "credit"], ["kl", "KL"], ["gap", "gap"]]
      .filter(([key]) => (key === "advantage" ? this.isRecorded : this[key]));
    this.largest = Object.fromEntries(["advantage", "credit", "kl", "gap"].map((key) => [
      key, Math.max(1e-9, ...(this[key] || [0]).map(Math.abs)),
    ]));
  }

  /** Returns the reason why a shading has no values; empty if it has values. */
  missing(shade) {
    if (shade === "kl" && !this.kl) return "This run's records hold no reference log-probabilities.";
    if (shade === "gap" && !this.gap) return "This run's records hold no learner log-probabilities.";
    if (shade === "credit" && !this.credit) return "This episode has not been replayed from every turn: the command below does so.";
    if (shade === "advantage" && this.isHeldOut) return "Nothing is learned from an evaluation: it has no advantages.";
    return "";
  }

  /** Returns the note below the legend. */
  note(shade) {
    if (shade !== "advantage" || this.isRecorded) return "";
    const { value, samples, mean } = this.group;
    return `No advantages were recorded. Shown is the reward minus the mean of its ${plural(samples, "sample")} ` +
      `(${short(mean)}): ${short(value)} for every token.`;
  }

  /** Returns class and strength (0 to 1) of one token's background. */
  shade(shade, k) {
    if (shade === "logprob") return ["warm", 1 - Math.exp(this.logprob[k])];
    if (!["advantage", "credit", "kl", "gap"].includes(shade) || !this[shade]) return ["", 0];
    const value = this[shade][k];
    const strength = Math.abs(value) / (["advantage", "credit"].includes(shade) ? Math.max(1, this.largest[shade]) : this.largest[shade]);
    return [shade === "gap" ? "warm" : value >= 0 ? "more" : "less", Math.sqrt(strength)];
  }

  /** Describes one token as text. */
  words(k) {
    const parts = [`p ${short(Math.exp(this.logprob[k]))}`, `log-prob ${short(this.logprob[k])}`];
    for (const [key, name] of this.known) parts.push(`${name} ${short(this[key][k])}`);
    return parts.join(" · ");
  }
}

/** Shows sampled tokens as shaded text. `first`: index of the first one among the episode's sampled tokens. */
function actionTokens(ids, first, values, shade, pieces) {
  const texts = tokenTexts(ids, pieces);
  return el("div", { class: "tokens action" }, ids.map((id, i) => {
    const [kind, strength] = values.shade(shade, first + i);
    return el("span", {
      class: shade === "mask" ? "token sampled" : `token ${kind}`,
      title: `token ${id} · ${values.words(first + i)}`,
      vars: { "--strength": `${Math.round(strength * 70)}%` },
    }, texts[i]);
  }));
}

/** Shows tokens that the policy did not sample. */
function readTokens(ids, kind, pieces) {
  const texts = tokenTexts(ids, pieces);
  return el("div", { class: "tokens" }, ids.map((id, i) =>
    el("span", { class: `token ${kind}`, title: `token ${id} · ${kind}, not trained on` }, texts[i])));
}

/** Shows the sampled tokens as a table, for readers who cannot see shades. */
function tokenTable(ids, first, values, pieces) {
  const texts = tokenTexts(ids, pieces);
  const heads = ["Token", "Id", "Log-probability", ...values.known.map(([, name]) => name[0].toUpperCase() + name.slice(1))];
  const line = (id, i) => el("tr", {},
    el("th", { scope: "row" }, texts[i]), el("td", {}, String(id)), el("td", {}, short(values.logprob[first + i])),
    values.known.map(([key]) => el("td", {}, short(values[key][first + i]))));
  const details = el("details", { class: "table" }, el("summary", {}, `${plural(ids.length, "token")} as a table`));
  // Filled when it is opened, because it can have hundreds of rows.
  details.addEventListener("toggle", () => {
    if (!details.open || details.querySelector("table")) return;
    details.append(el("table", {},
      tableHead(heads), el("tbody", {}, ids.map(line))));
  });
  return details;
}

/** Creates the selection of the shading. */
function shadePicker(values, shade, onChange) {
  const options = Object.entries(SHADES).map(([key, { title }]) =>
    el("option", { value: key, selected: key === shade }, title + (values.missing(key) ? " (none)" : "")));
  return el("label", { class: "shade" }, el("span", {}, "Shade tokens by "),
    el("select", { id: "shade", on: { change: (event) => onChange(event.target.value) } }, options));
}

function shadeLegend(values, shade) {
  const missing = values.missing(shade);
  const words = missing || SHADES[shade].words || "";
  const bars = { logprob: ["warm"], gap: ["warm"], advantage: ["less", "more"], credit: ["less", "more"], kl: ["less", "more"] }[shade] || [];
  return el("p", { class: "shade-legend" },
    missing ? null : bars.map((kind) => el("span", { class: `ramp ${kind}`, "aria-hidden": "true" })),
    shade === "mask" ? ["sampled", "prompt", "observation"].map((kind) =>
      el("span", { class: `token ${kind}` }, kind === "sampled" ? "trained on" : kind)) : words,
    values.note(shade) ? el("span", { class: "quiet" }, ` ${values.note(shade)}`) : null);
}
