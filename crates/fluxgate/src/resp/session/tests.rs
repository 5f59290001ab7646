//! Sessions without a socket.

use fluxgate_core::task::ready;
use proptest::collection::vec;
use proptest::prelude::*;

use super::fuzz::{replies_of, session, session_on};
use super::*;

fn replies(text: &str) -> String {
    let (replies, _) = replies_of(&mut session(), [text.as_bytes()]);
    String::from_utf8(replies).unwrap()
}

#[test]
fn a_pipeline_is_answered_in_order_however_it_is_split() {
    let pipeline = b"PING\r\n*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n*0\r\n\
        *5\r\n$11\r\ncl.throttle\r\n$1\r\nk\r\n$1\r\n2\r\n$1\r\n1\r\n$8\r\n31622400\r\n\
        *2\r\n$5\r\nHELLO\r\n$1\r\n4\r\n*4\r\n$8\r\nFG.CHECK\r\n$3\r\napi\r\n$4\r\nuser\r\n$1\r\nu\r\n\
        *1\r\n$7\r\nUNKNOWN\r\n*x\r\nPING\r\n";
    let whole = replies_of(&mut session(), [&pipeline[..]]);
    let text = String::from_utf8_lossy(&whole.0);
    assert_eq!(
        text,
        "+PONG\r\n$2\r\nhi\r\n*5\r\n:0\r\n:3\r\n:2\r\n:-1\r\n:31622400\r\n\
         -NOPROTO unsupported protocol version\r\n\
         *9\r\n:1\r\n:3\r\n:2\r\n:0\r\n:10540800000\r\n:0\r\n$1\r\nr\r\n$2\r\nb0\r\n$7\r\nallowed\r\n\
         -ERR unknown command 'UNKNOWN', with args beginning with: \r\n\
         -ERR Protocol error: invalid multibulk length\r\n"
    );
    assert!(whole.1);
    for first in 1..pipeline.len() {
        let (a, b) = pipeline.split_at(first);
        assert_eq!(replies_of(&mut session(), [a, b]), whole, "{first}");
    }
    assert_eq!(replies_of(&mut session(), pipeline.chunks(1)), whole);
}

#[test]
fn only_checks_fail_before_the_rules_are_loaded() {
    let mut session = session_on(Engine::in_memory());
    let (replies, ended) = replies_of(&mut session, [&b"FG.CHECK api\r\nPING\r\n"[..]]);
    let text = String::from_utf8(replies).unwrap();
    assert_eq!(text, "-LOADING the rules are not loaded yet\r\n+PONG\r\n");
    assert!(!ended);
    let throttle = b"CL.THROTTLE k 1 1 1\r\n";
    assert!(
        replies_of(&mut session, [&throttle[..]])
            .0
            .starts_with(b"*5\r\n:0\r\n")
    );
}

#[test]
fn connection_commands_are_answered_like_redis_does() {
    for (line, reply) in [
        (
            "auth secret",
            "-ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?\r\n",
        ),
        ("AUTH default secret", "+OK\r\n"),
        (
            "AUTH ann secret",
            "-WRONGPASS invalid username-password pair or user is disabled.\r\n",
        ),
        (
            "AUTH",
            "-ERR wrong number of arguments for 'auth' command\r\n",
        ),
        (
            "HELLO x",
            "-ERR Protocol version is not an integer or out of range\r\n",
        ),
        (
            "HELLO 3 AUTH ann x",
            "-WRONGPASS invalid username-password pair or user is disabled.\r\n",
        ),
        (
            "HELLO 3 SETNAME",
            "-ERR Syntax error in HELLO option 'SETNAME'\r\n",
        ),
        ("SELECT 0", "+OK\r\n"),
        ("SELECT 1", "-ERR DB index is out of range\r\n"),
        (
            "PING a b",
            "-ERR wrong number of arguments for 'ping' command\r\n",
        ),
        ("PING a", "$1\r\na\r\n"),
        ("CLIENT SETINFO lib-name redis-py", "+OK\r\n"),
        (
            "CLIENT SETINFO lib-xx redis-py",
            "-ERR Unrecognized option 'lib-xx'\r\n",
        ),
        ("CLIENT GETNAME", "$-1\r\n"),
        ("CLIENT NO-EVICT on", "+OK\r\n"),
        (
            "CLIENT",
            "-ERR wrong number of arguments for 'client' command\r\n",
        ),
        (
            "CLIENT ID 1",
            "-ERR wrong number of arguments for 'client|id' command\r\n",
        ),
        ("COMMAND COUNT", ":20\r\n"),
        ("RESET", "+RESET\r\n"),
        ("QUIT", "+OK\r\n"),
        (
            "CL.THROTTLE k",
            "-ERR wrong number of arguments for 'cl.throttle' command\r\n",
        ),
        (
            "FG.CHECK",
            "-ERR wrong number of arguments for 'fg.check' command\r\n",
        ),
    ] {
        assert_eq!(replies(&format!("{line}\r\n")), reply, "{line}");
    }
    let named = replies(
        "HELLO 3 AUTH default x SETNAME me\r\nCLIENT GETNAME\r\nRESET\r\nCLIENT GETNAME\r\n",
    );
    assert!(named.starts_with("%7\r\n"), "{named}");
    assert!(named.ends_with("$2\r\nme\r\n+RESET\r\n$-1\r\n"), "{named}");
}

#[test]
fn an_unknown_inline_command_ends_the_connection() {
    let http = b"GET / HTTP/1.1\r\nHost: x\r\n\r\nPING\r\n";
    let (replies, ended) = replies_of(&mut session(), [&http[..]]);
    assert_eq!(
        String::from_utf8(replies).unwrap(),
        "-ERR unknown command 'GET', with args beginning with: '/' 'HTTP/1.1' \r\n"
    );
    assert!(ended);
}

#[test]
fn unsent_replies_are_bounded() {
    let pipeline = b"COMMAND DOCS\r\n".repeat(4_000);
    let mut out = Vec::new();
    let (read, next) = ready(session().answer(&pipeline, &mut out));
    assert_eq!(next, NextStep::Send);
    assert!(read < pipeline.len() && out.len() < 2 * MAX_UNSENT);
}

/// Generates requests whose replies do not depend on the time.
fn any_request() -> impl Strategy<Value = Vec<u8>> {
    let word = |words: &'static [&'static str]| {
        proptest::sample::select(words).prop_map(|word| word.as_bytes().to_vec())
    };
    let name = word(&[
        "PING",
        "echo",
        "HELLO",
        "CL.THROTTLE",
        "Fg.Check",
        "AUTH",
        "CLIENT",
        "COMMAND",
        "SELECT",
        "RESET",
        "MULTI",
        "EXEC",
        "DISCARD",
        "nope",
    ]);
    let argument = prop_oneof![
        word(&[
            "2", "3", "1", "31622400", "none", "user", "u", "SETNAME", "GETNAME", "DOCS", "0"
        ]),
        vec(any::<u8>(), 0..20),
    ];
    let array = (name.clone(), vec(argument, 0..6)).prop_map(|(name, arguments)| {
        let mut wire = format!("*{}\r\n", 1 + arguments.len()).into_bytes();
        for argument in [name].iter().chain(&arguments) {
            wire.extend(format!("${}\r\n", argument.len()).bytes());
            wire.extend(argument);
            wire.extend(b"\r\n");
        }
        wire
    });
    let line = name.prop_map(|mut name| {
        name.extend(b" 1\r\n");
        name
    });
    prop_oneof![8 => array, 1 => line, 1 => vec(any::<u8>(), 0..10)]
}

proptest! {
    #[test]
    fn any_pipeline_is_answered_the_same_however_it_is_split(
        requests in vec(any_request(), 1..12),
        cuts in vec(1_usize..40, 1..20),
    ) {
        let pipeline = requests.concat();
        let whole = replies_of(&mut session(), [&pipeline[..]]);
        let mut chunks = Vec::new();
        let mut rest = &pipeline[..];
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (chunk, more) = rest.split_at(rest.len().min(*cut));
            chunks.push(chunk);
            rest = more;
        }
        let cut = replies_of(&mut session(), chunks);
        prop_assert_eq!(cut, whole);
    }

    #[test]
    fn random_bytes_are_answered_the_same_however_they_are_split(bytes in vec(any::<u8>(), 0..400)) {
        fuzz::resp(&bytes);
    }

    #[test]
    fn request_like_bytes_are_answered_the_same_however_they_are_split(
        bytes in "[*$][0-9-]{0,3}(\r\n)?[*$]?[0-9]{0,2}\r\n[A-Za-z.\r\n$*0-9]{0,60}",
    ) {
        fuzz::resp(bytes.as_bytes());
    }
}
