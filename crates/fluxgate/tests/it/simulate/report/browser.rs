//! A headless browser that opens a page.

use std::process::Command;

use serde_json::Value;

use crate::support::Dir;

/// The viewport.
#[derive(Clone, Copy)]
pub(crate) struct View {
    pub(crate) width: u32,
    pub(crate) dark: bool,
}

pub(crate) const DESKTOP: View = View {
    width: 1200,
    dark: false,
};

/// Shows a page, unchanged, in a frame of that width, and runs a function body
/// that has the frame's document as `doc`. Fails if the browser logs anything to its
/// console.
#[track_caller]
pub(crate) fn look(page: &str, view: View, body: &str) -> Value {
    let (answer, console) = ask(page, view, body);
    assert_eq!(console, Vec::<String>::new());
    answer
}

/// Like [`look`], but returns the console as well.
#[track_caller]
pub(crate) fn ask(page: &str, view: View, body: &str) -> (Value, Vec<String>) {
    let dir = Dir::new();
    let page = serde_json::to_string(page).unwrap().replace('<', "\\u003c");
    let width = view.width;
    dir.write(
        "host.html",
        format!(
            "<!doctype html><meta charset=\"utf-8\"><body style=\"margin:0\">\
             <iframe id=\"page\" style=\"border:0;width:{width}px;height:900px\"></iframe><script>\n\
             const frame = document.getElementById('page');\n\
             frame.onload = () => {{\n\
               const doc = frame.contentDocument;\n\
               const look = () => {{ {body} }};\n\
               const answer = document.createElement('pre');\n\
               answer.textContent = encodeURIComponent(JSON.stringify(look()));\n\
               document.body.replaceChildren(answer);\n\
             }};\n\
             frame.srcdoc = {page};\n\
             </script>"
        ),
    );
    let scheme = u8::from(!view.dark);
    let output = Command::new("timeout")
        .args(["--kill-after=10", "120", "chromium"])
        .args(["--headless", "--no-sandbox", "--disable-gpu"])
        .args(["--enable-logging=stderr", "--window-size=1400,1000"])
        .arg(format!("--user-data-dir={}", dir.path("profile").display()))
        .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
        .arg("--dump-dom")
        .arg(format!("file://{}", dir.path("host.html").display()))
        .output()
        .unwrap();
    let dom = String::from_utf8(output.stdout).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "chromium failed (scripts/test installs it): {said}"
    );
    let console = said.lines().filter(|line| line.contains(":CONSOLE"));
    let console = console.map(str::to_owned).collect();
    let answer = dom
        .split_once("<pre>")
        .and_then(|(_, rest)| rest.split_once("</pre>"));
    let Some((answer, _)) = answer else {
        panic!("the page did not answer: {console:?}\n{dom}");
    };
    (serde_json::from_str(&decoded(answer)).unwrap(), console)
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits: Vec<_> = rest.by_ref().take(2).collect();
        let digits = String::from_utf8(digits).unwrap();
        bytes.push(u8::from_str_radix(&digits, 16).unwrap());
    }
    String::from_utf8(bytes).unwrap()
}
