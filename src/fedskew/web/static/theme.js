// Runs before the page is drawn, so that a chosen theme never flashes in the other one.
(() => {
  const chosen = localStorage.getItem("fedskew-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
