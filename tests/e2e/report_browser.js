// What a page must hold to at any width and in any theme: a list of what it does not.
(() => {
  const wrong = [];
  const say = (what, element) => {
    const text = (element?.textContent ?? "").trim().replace(/\s+/g, " ").slice(0, 40);
    wrong.push(element ? `${what}: <${element.tagName.toLowerCase()}> ${text}` : what);
  };
  const all = (selector) => [...document.querySelectorAll(selector)];

  const wide = document.documentElement.scrollWidth;
  if (wide > document.documentElement.clientWidth) say(`the page is ${wide} px wide`);

  let level = 0;
  for (const heading of all("h1, h2, h3, h4, h5, h6")) {
    const next = Number(heading.tagName[1]);
    if (next > level + 1) say(`h${next} follows h${level}`, heading);
    level = next;
  }
  if (all("h1").length !== 1) say(`${all("h1").length} h1`);
  if (!document.documentElement.lang) say("no language");

  const ids = all("[id]").map((one) => one.id);
  if (new Set(ids).size !== ids.length) say("an id is there twice");
  for (const link of all("a[href]")) {
    const to = link.getAttribute("href");
    if (!to.startsWith("#") || !document.getElementById(to.slice(1))) say(`leads to ${to}`, link);
  }
  for (const attribute of ["aria-labelledby", "aria-describedby"]) {
    for (const one of all(`[${attribute}]`)) {
      for (const id of one.getAttribute(attribute).split(" ")) {
        if (!document.getElementById(id)?.textContent.trim()) say(`no ${attribute}`, one);
      }
    }
  }
  for (const svg of all("svg:not([aria-hidden])")) {
    const has = (name) => svg.querySelector(`:scope > ${name}`)?.textContent.trim();
    if (svg.getAttribute("role") !== "img" || !has("title") || !has("desc")) say("unnamed", svg);
  }
  for (const table of all("table")) {
    if (!table.caption?.textContent.trim()) say("no caption", table);
    for (const th of table.querySelectorAll("th:not([scope])")) say("no scope", th);
  }
  for (const one of all("[tabindex]")) if (one.tabIndex > 0) say("tabindex", one);
  for (const one of all("div, pre, figure")) {
    const scrolls = ["auto", "scroll"].includes(getComputedStyle(one).overflowX);
    const named = one.getAttribute("aria-labelledby") || one.getAttribute("aria-label");
    if (scrolls && (one.tabIndex !== 0 || !named || one.getAttribute("role") !== "region")) {
      say("scrolls, but keys cannot reach it by name", one);
    }
  }

  // Contrast of every text against what is behind it, by WCAG 2.
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const known = new Map();
  const colour = (text) => {
    if (!known.has(text)) {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = text;
      canvas.fillRect(0, 0, 1, 1);
      known.set(text, [...canvas.getImageData(0, 0, 1, 1).data]);
    }
    return known.get(text);
  };
  const luminance = ([r, g, b]) => {
    const linear = (c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  };
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const found = colour(getComputedStyle(one).backgroundColor);
      if (found[3] === 255) return found;
    }
    return [255, 255, 255, 255];
  };
  let texts = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || element.closest("script, style, title, desc, .sr")) continue;
    if (!element.checkVisibility()) continue;
    const style = getComputedStyle(element);
    const svg = element.closest("svg");
    const front = colour(svg ? style.fill : style.color);
    const [a, b] = [luminance(front), luminance(behind(svg ? svg.parentElement : element))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) say(`contrast ${contrast.toFixed(2)}`, element);
    if (svg) {
      const size = parseFloat(style.fontSize) * svg.getScreenCTM().a;
      if (size < 9) say(`letters of ${size.toFixed(1)} px`, element);
    }
    texts += 1;
  }
  if (texts < 100) say(`only ${texts} texts were looked at`);
  const page = luminance(behind(document.body));
  const dark = matchMedia("(prefers-color-scheme: dark)").matches && !matchMedia("print").matches;
  if (dark ? page > 0.05 : page < 0.95) say(`a page of luminance ${page.toFixed(2)}`);
  return [...new Set(wrong)].slice(0, 20);
})()
