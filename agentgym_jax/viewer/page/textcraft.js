// TextCraft: inventory and recipe tree, parsed from actions and observations.

/** `craft 4 oak planks using 1 oak log` -> {count, output, uses: [{count, item}]}; null if it is none. */
function readRecipe(line) {
  const match = line.trim().match(/^craft (\d+) (.+?) using (.+)$/);
  if (!match) return null;
  const uses = match[3].split(/,\s*/).map((part) => part.match(/^(\d+) (.+)$/)).filter(Boolean);
  return {
    count: Number(match[1]),
    output: match[2],
    uses: uses.map(([, count, item]) => ({ count: Number(count), item })),
  };
}

/** Recipes and goal from the first observation; null if it is not TextCraft's. */
function textcraftTask(text) {
  const goal = text.match(/Goal: craft (.+?)\.?\s*$/m);
  const recipes = text.split("\n").map(readRecipe).filter(Boolean);
  return goal && recipes.length ? { goal: goal[1], recipes } : null;
}

function plainName(item) {
  return item.replace(/^minecraft:/, "").replaceAll("_", " ");
}

/** Returns the inventory after each turn: a list of Maps, the first before any turn. */
function inventories(turns) {
  const held = new Map();
  const add = (item, count) => {
    const now = (held.get(item) || 0) + count;
    if (now > 0) held.set(item, now);
    else held.delete(item);
  };
  const after = [new Map()];
  for (const turn of turns) {
    const made = turn.observation.match(/^(Got|Crafted) (\d+) (.+?)\s*$/m);
    if (made) {
      const recipe = made[1] === "Crafted" && turn.action ? readRecipe(turn.action.trim().toLowerCase()) : null;
      if (recipe) recipe.uses.forEach(({ item, count }) => add(item, -count));
      add(plainName(made[3]), Number(made[2]));
    }
    after.push(new Map(held));
  }
  return after;
}

/** Returns the recipes for an item, or for members of an item family (`planks`: `oak planks`). */
function recipesFor(name, recipes) {
  const exact = recipes.filter((r) => r.output === name);
  return exact.length ? exact : recipes.filter((r) => r.output.endsWith(` ${name}`));
}

/** Returns the recipe tree of a goal: {item, count, family, others, from: [...]}; of several recipes,
 * one whose ingredients the agent has held. */
function recipeTree(item, count, recipes, made, above = []) {
  const had = (way) => way.uses.filter((u) => made.has(u.item)).length;
  const ways = (above.includes(item) ? [] : recipesFor(item, recipes)).sort((a, b) => had(b) - had(a));
  const family = ways.length > 0 && ways[0].output !== item ? ways.map((w) => w.output) : [];
  const batches = ways.length ? Math.ceil(count / ways[0].count) : 0;
  const from = ways.length
    ? ways[0].uses.map((u) => recipeTree(u.item, u.count * batches, recipes, made, [...above, item])) : [];
  return { item, count, family, others: family.length ? 0 : Math.max(0, ways.length - 1), from };
}

function heldOf(node, inventory) {
  const names = [node.item, ...node.family];
  let sum = 0;
  for (const [item, count] of inventory) {
    if (names.includes(item)) sum += count;
  }
  return sum;
}

/** Draws a node of the tree with its children; `isSettled` if the item that needs it already exists. */
function treeItem(node, inventory, made, isSettled) {
  const held = heldOf(node, inventory);
  const isMade = [node.item, ...node.family].some((item) => made.has(item));
  const found = held >= node.count ? "enough" : isMade ? "used" : held > 0 ? "some" : "none";
  const state = isSettled && found === "none" ? "idle" : found;
  const sign = { enough: "✓", used: "✓", some: "◐", none: "○", idle: "·" }[state];
  const words = { enough: "held", used: "had", some: `${held} held`, none: "missing", idle: "not needed" }[state];
  return el("li", { class: `need ${state}` },
    el("span", { class: "sign", "aria-hidden": "true" }, sign), ` ${node.count} `,
    el("strong", {}, node.item),
    node.family.length ? el("span", { class: "quiet" }, ` (such as ${node.family[0]})`) : null,
    el("span", { class: "quiet" }, ` ${words}${node.from.length ? "" : ", to fetch"}`),
    node.others ? el("span", { class: "quiet" }, `, ${plural(node.others, "other way", "other ways")}`) : null,
    node.from.length ? el("ul", {}, node.from.map((n) =>
      treeItem(n, inventory, made, isSettled || found === "enough" || found === "used"))) : null);
}

/** Draws inventory and recipe tree after `at` turns. */
function textcraftWorld(task, turns, at) {
  const all = inventories(turns);
  const inventory = all[at];
  const made = new Set(all.slice(0, at + 1).flatMap((held) => [...held.keys()]));
  const items = [...inventory].map(([item, count]) =>
    el("li", {}, el("strong", {}, `${count}×`), ` ${item}`));
  return [
    el("h4", {}, "Inventory"),
    items.length ? el("ul", { class: "inventory" }, items) : el("p", { class: "quiet" }, "empty"),
    el("h4", {}, "What the goal needs"),
    el("ul", { class: "tree" }, treeItem(recipeTree(task.goal, 1, task.recipes, made), inventory, made, false)),
  ];
}
