// The gallery: which images are shown, and in which order.
const gallery = document.querySelector(".gallery");
if (gallery) {
  const [show, sort] = document.querySelectorAll(".controls select");
  const count = document.querySelector(".controls output");
  const more = document.querySelector(".more");
  const page = 120;
  let shown = page;
  const cards = [...gallery.children];
  const number = (card, key) => Number(card.dataset[key]);
  const failures = ["wrong", "broken", "abstains", "right"];
  const orders = {
    image: (a, b) => number(a, "image") - number(b, "image"),
    failures: (a, b) =>
      failures.indexOf(a.dataset.outcome) - failures.indexOf(b.dataset.outcome) ||
      number(a, "radius") - number(b, "radius"),
    smallest: (a, b) => number(a, "radius") - number(b, "radius"),
    largest: (a, b) => number(b, "radius") - number(a, "radius"),
    sigma: (a, b) => number(a, "sigma") - number(b, "sigma"),
  };
  const arrange = () => {
    cards.sort(orders[sort.value]);
    const chosen = cards.filter((card) => [card.dataset.outcome, "all"].includes(show.value));
    const visible = new Set(chosen.slice(0, shown));
    for (const card of cards) card.hidden = !visible.has(card);
    gallery.append(...cards);
    count.value = `${visible.size} of ${chosen.length} images`;
    more.hidden = visible.size === chosen.length;
  };
  const start = () => { shown = page; arrange(); };
  show.addEventListener("change", start);
  sort.addEventListener("change", start);
  more.addEventListener("click", () => { shown += page; arrange(); });
  arrange();
}
