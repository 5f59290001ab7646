//! A headless browser.

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

/// Opens a page in a frame of the given width and evaluates a function body, in which `doc`
/// is the frame's document. Fails if the browser logs anything to its console.
#[track_caller]
pub(crate) fn evaluate(page: &str, view: View, body: &str) -> Value {
    let (result, console) = evaluate_with_console(page, view, body);
    assert_eq!(console, Vec::<String>::new());
    result
}

/// Like [`evaluate`], but returns the console as well.
#[track_caller]
pub(crate) fn evaluate_with_console(page: &str, view: View, body: &str) -> (Value, Vec<String>) {
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
               const evaluate = () => {{ {body} }};\n\
               const result = document.createElement('pre');\n\
               result.textContent = encodeURIComponent(JSON.stringify(evaluate()));\n\
               document.body.replaceChildren(result);\n\
             }};\n\
             frame.srcdoc = {page};\n\
             </script>"
        ),
    );
    let scheme = u8::from(!view.dark);
    let output = Command::new("timeout")
        .args(["--kill-after=10", "600", "chromium-headless-shell"])
        .args(["--no-sandbox", "--disable-gpu"])
        .args(["--enable-logging=stderr", "--window-size=1400,1000"])
        .arg(format!("--user-data-dir={}", dir.path("profile").display()))
        .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
        .arg("--dump-dom")
        .arg(format!("file://{}", dir.path("host.html").display()))
        .output()
        .unwrap();
    let dom = String::from_utf8(output.stdout).unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "chromium-headless-shell failed (scripts/test installs it): {stderr}"
    );
    let console = stderr.lines().filter(|line| line.contains(":CONSOLE"));
    let console = console.map(str::to_owned).collect();
    let result = dom
        .split_once("<pre>")
        .and_then(|(_, rest)| rest.split_once("</pre>"));
    let Some((result, _)) = result else {
        panic!("the page has no result: {console:?}\n{dom}");
    };
    (serde_json::from_str(&decoded(result)).unwrap(), console)
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
