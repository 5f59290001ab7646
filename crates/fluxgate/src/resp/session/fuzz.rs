//! Sessions without a socket, for tests and fuzzing.

use std::net::SocketAddr;
use std::sync::LazyLock;

use fluxgate_core::RuleSets;
use fluxgate_core::task::ready;

use super::*;

/// Rules with a window of a year, so that replies hardly depend on time.
static RULES: LazyLock<RuleSets> = LazyLock::new(|| {
    const TEXT: &str = "
rule_sets:
  api:
    rules:
      - { id: r, scope: per_user, bands: [ { capacity: 3, window: 366d } ] }
";
    RuleSets::from_yaml(TEXT).expect("the rules are good")
});

/// Checks that the replies do not depend on how the input is split into reads.
pub fn resp(bytes: &[u8]) {
    let (whole, ended) = replies_of(&mut session(), [bytes]);
    for size in [1, 7] {
        let (cut, cut_ended) = replies_of(&mut session(), bytes.chunks(size));
        assert_eq!(ended, cut_ended, "in pieces of {size}");
        assert_eq!(
            without_numbers(&whole),
            without_numbers(&cut),
            "in pieces of {size}"
        );
    }
}

/// Replaces numbers, because some depend on time.
fn without_numbers(replies: &[u8]) -> String {
    let text = replies.escape_ascii().to_string();
    let mut masked = String::with_capacity(text.len());
    for char in text.chars() {
        if !char.is_ascii_digit() {
            masked.push(char);
        } else if !masked.ends_with('#') {
            masked.push('#');
        }
    }
    masked
}

/// Returns a session with [`RULES`].
pub(super) fn session() -> Session {
    let engine = Engine::in_memory();
    engine.swap_rules(RULES.clone());
    session_on(engine)
}

pub(super) fn session_on(engine: Engine) -> Session {
    let peer = SocketAddr::from(([127, 0, 0, 1], 1));
    let mut client = Client::new(peer, None);
    // The same for all sessions, because replies contain it.
    client.id = 1;
    Session::new(Arc::new(engine), client)
}

/// Returns the replies to input that arrives in chunks, and whether the connection ended.
pub(super) fn replies_of<'a>(
    session: &mut Session,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<u8>, bool) {
    let (mut input, mut sent, mut needed) = (Vec::new(), Vec::new(), 1);
    for chunk in chunks {
        input.extend_from_slice(chunk);
        while input.len() >= needed {
            let mut out = Vec::new();
            let (read, next) = ready(session.answer(&input, &mut out));
            sent.append(&mut out);
            input.drain(..read);
            match next {
                NextStep::Read(more) => {
                    assert!(more > input.len(), "the input already has {more} bytes");
                    needed = more;
                }
                NextStep::Send => {}
                NextStep::End => return (sent, true),
            }
        }
    }
    (sent, false)
}
