#!/usr/bin/env python3
"""Looks at a report in a browser, at two widths, in both themes and as it is printed.

    report_browser.py CHROMIUM PAGE [SCREENSHOTS]

Speaks the DevTools protocol over a pipe, so that nothing else is needed. Prints what is wrong; with
a directory for SCREENSHOTS leaves a picture of each look there.
"""
import base64
import json
import os
import pathlib
import select
import subprocess
import sys
import tempfile
import time

PATIENCE = 120  # seconds, for any one answer
WIDTHS = (360, 1440)
CHECKS = pathlib.Path(__file__).with_name("report_browser.js").read_text()


class Browser:
    """One headless browser with one page."""

    def __init__(self, program, profile):
        to_browser, self.out = os.pipe()
        self.inn, from_browser = os.pipe()
        command = [
            program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-background-networking", "--disable-component-update",
            "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={profile}",
            "--remote-debugging-pipe", "about:blank",
        ]
        # It reads on descriptor 3 and writes on 4, whatever numbers these have here.
        shell = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"'
        self.process = subprocess.Popen(
            ["bash", "-c", shell, "browser", str(to_browser), str(from_browser), *command],
            pass_fds=(to_browser, from_browser), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self.buffer, self.number, self.events, self.session = b"", 0, [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def receive(self):
        until = time.monotonic() + PATIENCE
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.inn], [], [], max(0, until - time.monotonic()))
            data = os.read(self.inn, 1 << 20) if ready else b""
            if not data:
                sys.exit("the browser ended" if ready else "the browser does not answer")
            self.buffer += data
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        self.number += 1
        number = self.number
        message = {"id": number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == number:
                if "error" in answer:
                    sys.exit(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def wait(self, method):
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self.receive())

    def evaluate(self, expression):
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in found:
            sys.exit(f"{expression[:60]}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def show(self, url, width, theme, media=""):
        self.events.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900,
                  deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": theme}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self.call("Page.navigate", url=url)
        self.wait("Page.loadEventFired")

    def complaints(self, url):
        """What it said of the page, and every request that was not for the page itself."""
        for event in self.events:
            parameters = event.get("params", {})
            match event.get("method"):
                case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded":
                    yield f"the console says {json.dumps(parameters)[:300]}"
                case "Network.requestWillBeSent" if parameters["request"]["url"] != url:
                    yield f"asks for {parameters['request']['url']}"

    def picture(self, path):
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 12000)}
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True,
                         clip={**clip, "scale": 1})
        path.write_bytes(base64.b64decode(shot["data"]))

    def end(self):
        self.session = None
        self.call("Browser.close")
        self.process.wait(PATIENCE)


def script_ran(browser):
    """The page's own script runs, so its hash in the page's policy is right; no other one does."""
    if not browser.evaluate("document.documentElement.classList.contains('js')"):
        yield "the page's own script did not run: is its hash in policy.txt?"
    browser.evaluate("""{
        const stranger = document.createElement("script");
        stranger.textContent = "window.stranger = true";
        document.body.append(stranger);
    }""")
    if browser.evaluate("window.stranger === true || window.hostile === true"):
        yield "a script ran that is not the page's own"


def first_key(browser):
    """The first press of Tab shows the way past the head of the page."""
    for kind in ("rawKeyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab",
                     windowsVirtualKeyCode=9)
    seen = browser.evaluate("""(() => {
        const one = document.activeElement, style = getComputedStyle(one);
        return [one.className, one.getBoundingClientRect().left >= 0, style.outlineStyle];
    })()""")
    if seen[:2] != ["skip", True] or seen[2] == "none":
        yield f"the first Tab leads to {seen}"


def details(browser):
    """The buttons open and close everything."""
    count = "document.querySelectorAll('details[open]').length"
    closed = "document.querySelectorAll('details:not([open])').length"
    browser.evaluate("document.querySelector('[data-details=close]').click()")
    if browser.evaluate(count):
        yield "not everything was closed"
    browser.evaluate("document.querySelector('[data-details=open]').click()")
    if browser.evaluate(closed):
        yield "not everything was opened"


def printed(browser):
    """On paper everything is open, on white, and nothing lies beyond the edge."""
    hidden = browser.evaluate("""[...document.querySelectorAll("details")].filter((one) =>
        getComputedStyle(one, "::details-content").contentVisibility !== "visible").length""")
    if hidden:
        yield f"{hidden} details stay closed"
    pdf = browser.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)["data"]
    if len(pdf) < 10_000:
        yield "there is nothing on paper"


def main():
    program, page, *pictures = sys.argv[1:]
    url = pathlib.Path(page).resolve().as_uri()
    wrong = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(program, profile)

        def look(name, *checks):
            found = [item for check in checks for item in check(browser)]
            found += browser.evaluate(CHECKS)
            if pictures:
                browser.picture(pathlib.Path(pictures[0], f"{name}.png"))
            print(f"{name}: {len(found)} wrong")
            wrong.extend(f"{name}: {item}" for item in found)

        def quiet(browser):
            return browser.complaints(url)

        for width in WIDTHS:
            for theme in ("light", "dark"):
                name = f"{width}-{theme}"
                browser.show(url, width, theme)
                look(name, first_key, quiet)
                look(f"{name}-open", details, quiet)
        browser.show(url, 1440, "light")
        look("script", quiet, script_ran)
        browser.show(url, 1100, "dark", media="print")
        look("print", printed)
        browser.end()
    print("\n".join(wrong))
    sys.exit(bool(wrong))


main()
