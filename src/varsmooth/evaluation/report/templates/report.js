// The gallery: which images are shown, and in which order.
const gallery = document.querySelector(".gallery");
if (gallery) {
  const [show, sort] = document.querySelectorAll(".controls select");
  const count = document.querySelector(".controls output");
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
    for (const card of cards) card.hidden = ![card.dataset.outcome, "all"].includes(show.value);
    gallery.append(...cards.sort(orders[sort.value]));
    count.value = `${cards.filter((card) => !card.hidden).length} of ${cards.length} images`;
  };
  show.addEventListener("change", arrange);
  sort.addEventListener("change", arrange);
  arrange();
}
