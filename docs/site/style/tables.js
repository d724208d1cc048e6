// The theme puts wide tables into boxes that scroll; the keyboard must reach them, too.
function reach() {
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) {
    box.tabIndex = 0;
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", "table");
  }
}

new MutationObserver(reach).observe(document.body, { childList: true, subtree: true });
reach();
