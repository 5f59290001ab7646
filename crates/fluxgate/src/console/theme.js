// Not a module: it runs before the first paint, so that a stored theme does not flash.
try {
  document.documentElement.dataset.theme = localStorage.getItem("fluxgate.theme") ?? "system";
} catch {
  // Without storage, the theme is that of the system.
}
