// Formulas are written as $…$ and $$…$$; arithmatex marks them, KaTeX (vendored) sets them.
document$.subscribe(({ body }) => {
  renderMathInElement(body, {
    delimiters: [
      { left: "\\(", right: "\\)", display: false },
      { left: "\\[", right: "\\]", display: true },
    ],
  });
});
