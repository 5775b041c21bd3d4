// Screen readers list the landmarks of a page by name, and keys must reach all of it; the theme leaves some out.
{
  let blocks = 0;
  const name = () => {
    for (const nav of document.querySelectorAll("nav.md-code__nav:not([aria-label])"))
      nav.setAttribute("aria-label", `Code ${++blocks}`);
    for (const wide of document.querySelectorAll(":is(.md-typeset__scrollwrap, .formula):not([tabindex])"))
      wide.tabIndex = 0; // a table or a formula wider than the page scrolls by keyboard
  };
  new MutationObserver(name).observe(document.body, { childList: true, subtree: true }); // they come later
  name();
  for (const nav of document.querySelectorAll("nav[aria-labelledby]")) {
    const label = document.getElementById(nav.getAttribute("aria-labelledby"));
    if (label && !label.textContent.trim()) { // a section with a page of its own: the words are in the link next to it
      nav.setAttribute("aria-label", label.parentElement.textContent.trim());
      nav.removeAttribute("aria-labelledby");
    }
  }
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
}
