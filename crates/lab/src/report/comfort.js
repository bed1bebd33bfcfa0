"use strict";
(() => {
  const all = () => document.querySelectorAll("details");
  const tools = document.querySelector(".tools");
  tools.hidden = false;
  tools.addEventListener("click", (event) => {
    const wanted = event.target.dataset.details;
    if (wanted) all().forEach((one) => { one.open = wanted === "open"; });
  });
  // Paper has nothing to click on.
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...all()].filter((one) => !one.open);
    closed.forEach((one) => { one.open = true; });
  });
  addEventListener("afterprint", () => { closed.forEach((one) => { one.open = false; }); });
  document.documentElement.classList.add("js");
})();
