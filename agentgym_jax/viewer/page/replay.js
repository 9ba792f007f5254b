// Replays of an episode: the credit of its actions, and the command that continues from a turn.

const REPLAYABLE = ["step", "eval"]; // kinds of files whose episodes can be replayed

/** Returns the credit of every turn; null if the run has no replay of all turns of the episode. */
function turnCredits(store, episode) {
  const credits = (store.index.credits || {})[episode.row.link];
  return credits && credits.length === episode.turns.length ? credits : null;
}

/** Returns the credit of the turn of each sampled token; null without a replay. */
function tokenCredits(store, episode) {
  const credits = turnCredits(store, episode);
  return credits && credits.flatMap((value, k) => episode.runs[1 + 2 * k].map(() => value));
}

/** Shows the credit of a turn next to its reward. */
function creditBadge(store, episode, k) {
  const credits = turnCredits(store, episode);
  if (!credits || !credits[k]) return null;
  return el("span", { class: `badge ${credits[k] > 0 ? "good" : "bad"}` },
    `credit ${credits[k] > 0 ? "+" : ""}${short(credits[k])}`);
}

/** Shows the command that replays the episode from a turn; from turn 0, that of every turn. */
function replayCommand(store, episode, turn) {
  const { row } = episode;
  if (!store.index.replay || !REPLAYABLE.includes(row.kind) || !episode.turns.length) return null;
  const text = `${store.index.replay} --episode=${row.link} ` + (turn ? `--turn=${turn} --branches=8` : "--every_turn");
  const field = el("input", { type: "text", readonly: true, value: text, "aria-label": "Command that replays this episode",
    on: { focus: () => field.select() } });
  const copy = async () => {
    field.select();
    if (navigator.clipboard) await navigator.clipboard.writeText(text);
    announce("Command copied");
  };
  return [el("span", {}, turn ? `Replay from turn ${turn} ` : "Replay from every turn "), field,
    el("button", { type: "button", on: { click: copy } }, "Copy")];
}
