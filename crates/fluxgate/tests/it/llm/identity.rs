//! Calls are charged to the sender of a verified token.

use fluxgate_testkit::tokens::TokenKey;

use super::*;
use crate::support::Dir;

#[test]
fn tokens_are_charged_to_a_claim_and_authorization_is_forwarded() {
    let secret = "a secret of at least thirty-two bytes";
    let dir = Dir::new();
    dir.write("secret", secret);
    let model = ModelServer::start();
    let url = model.url();
    let config = format!(
        "filters: {{ main: {{ rule_set: s, identity: {{ api_key: 'jwt:team.id' }}, \
         jwt: {{ secret_file: secret, on_invalid: deny }} }} }}\n\
         gateway:\n  routes:\n    - {{ id: llm, upstreams: [\"{url}\"], filters: [main], \
         llm: {{ rules: main }} }}\n{RULES}"
    );
    let service = Service::start_in(dir, &["gateway"], &config);
    let key = TokenKey::of_secret("HS256", "any", secret.as_bytes());
    let mut http = Http::new(service.address("gateway"));
    let mut call = |token: &str, body: &Value| {
        let authorization = format!("Bearer {token}");
        // The header counts where no claim identifies the sender, but not here.
        let headers = [("Authorization", &*authorization), ("X-API-Key", "k")];
        http.request("POST", CHAT, &headers, &body.to_string())
    };
    let token = |team: &str| key.token(&format!(r#"{{"sub":"u","team":{{"id":"{team}"}}}}"#));
    let (ours, theirs) = (token("k"), token("other"));

    assert_eq!(call(&theirs, &chat("m")).status, 200);
    assert_eq!(charged(&service), [0; 4]);
    assert_eq!(call(&ours, &chat("m")).status, 200);
    assert_eq!(charged(&service), REPORTED);
    let streamed = call(&ours, &streamed_chat("m"));
    assert!(streamed.body.ends_with("data: [DONE]\n\n"), "{streamed:?}");
    assert_eq!(charged(&service), REPORTED.map(|number| number * 2));
    assert_eq!(call(&ours[1..], &chat("m")).status, 401);

    let requests = model.requests();
    let sent: Vec<_> = { requests.iter() }
        .map(|request| request.values("authorization"))
        .collect();
    let expected = [&theirs, &ours, &ours].map(|token| vec![format!("Bearer {token}")]);
    assert_eq!(sent, expected);
}
