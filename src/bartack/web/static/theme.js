// Sets the theme before the page is painted; a plain script, because modules run later.
(() => {
  try {
    const theme = localStorage.getItem("theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // Without storage the theme is that of the system.
  }
  document.documentElement.classList.add("script");
})();
