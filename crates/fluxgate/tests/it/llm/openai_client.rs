//! OpenAI's own client in front of the gateway.

use std::process::Command;

use fluxgate_testkit::wait_until;

use super::*;
use crate::support::python;

/// Runs a script with `client`, a client of the gateway; returns what it prints.
fn run(service: &Service, script: &str) -> String {
    let url = format!("http://{}/v1", service.address("gateway"));
    let script = format!(
        "import openai\n\
         client = openai.OpenAI(base_url='{url}', api_key='secret', max_retries=0,\n    \
         default_headers={{'X-API-Key': 'k'}})\n\
         ask = dict(max_tokens=50, messages=[{{'role': 'user', 'content': 'Say hello, pls'}}])\n\
         {script}"
    );
    let output = Command::new(python()).args(["-c", &script]).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn plain_calls_are_charged_as_the_server_counts() {
    let model = ModelServer::start();
    let service = start(&model);
    let said = run(
        &service,
        "answer = client.chat.completions.with_raw_response.create(model='m', **ask)\n\
         print(answer.headers['x-ratelimit-remaining-requests'])\n\
         answer = answer.parse()\n\
         print(answer.choices[0].message.content, answer.usage.total_tokens)\n\
         client.embeddings.create(model='m', input='hi', encoding_format='float')\n",
    );
    assert_eq!(said, "99\nGrüße 👋🏽! 12\n");
    let prompt = ModelServer::PROMPT_TOKENS;
    let [total, prompts, completion, calls] = REPORTED;
    assert_eq!(
        charged(&service),
        [total + prompt, prompts + prompt, completion, calls + 1]
    );
    let authorization = model.requests()[0].values("authorization").join(",");
    assert_eq!(authorization, "Bearer secret");
}

#[test]
fn streams_are_charged_as_the_server_counts() {
    let model = ModelServer::start();
    let service = start(&model);
    let said = run(
        &service,
        "for option in [{}, {'include_usage': False}, {'include_usage': True}]:\n  \
         more = {'stream_options': option} if option else {}\n  \
         chunks = list(client.chat.completions.create(model='m', stream=True, **more, **ask))\n  \
         print(''.join(c.choices[0].delta.content for c in chunks if c.choices),\n    \
         sum(c.usage is not None for c in chunks), len(chunks))\n",
    );
    let chunks = ModelServer::COMPLETION_TOKENS;
    let line = |usages: u64| format!("Grüße 👋🏽! {usages} {}\n", chunks + usages);
    assert_eq!(said, [0, 0, 1].map(line).concat());
    assert_eq!(charged(&service), REPORTED.map(|number| number * 3));
}

#[test]
fn an_aborted_stream_is_charged_as_far_as_it_was_seen() {
    let model = ModelServer::start();
    let service = start(&model);
    let said = run(
        &service,
        "stream = client.chat.completions.create(model='hold=2', stream=True, **ask)\n\
         for _, chunk in zip(range(2), stream): print(chunk.choices[0].delta.content)\n\
         stream.close()\n",
    );
    assert_eq!(said, "Gr\nüß\n");
    let seen = [PROMPT_BOUND + 2, PROMPT_BOUND, 2, 1];
    wait_until("the call is settled", || charged(&service) == seen);
}

#[test]
fn a_server_that_says_no_usage_is_charged_by_the_bound() {
    let model = ModelServer::start();
    let service = start(&model);
    run(
        &service,
        "client.chat.completions.create(model='mute', **ask)\n",
    );
    let seen = ModelServer::WORDS.concat().len().div_ceil(3) as u64;
    assert_eq!(
        charged(&service),
        [PROMPT_BOUND + seen, PROMPT_BOUND, seen, 1]
    );
}

#[test]
fn a_denial_is_a_rate_limit_error() {
    let model = ModelServer::start();
    let service = start_with(&model, &RULES.replace("capacity: 100000", "capacity: 10"));
    let said = run(
        &service,
        "try:\n    client.chat.completions.create(model='m', **ask)\n\
         except openai.RateLimitError as error:\n    \
         print(error.status_code, error.response.headers['x-ratelimit-limit-tokens'])\n",
    );
    assert_eq!(said, "429 10\n");
    assert_eq!(charged(&service), [0; 4]);
}
