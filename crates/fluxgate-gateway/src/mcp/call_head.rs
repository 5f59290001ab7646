//! The head of a request together with the call in its body.

use fluxgate_http::{McpCall, RequestHead};

/// The head of a request that makes this call, so that sources can read both.
#[derive(Debug)]
pub(crate) struct CallHead<'a, H> {
    pub(crate) head: &'a H,
    pub(crate) call: McpCall<'a>,
}

impl<H: RequestHead> RequestHead for CallHead<'_, H> {
    fn method(&self) -> &str {
        self.head.method()
    }

    fn query(&self) -> Option<&str> {
        self.head.query()
    }

    fn header_lines<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.head.header_lines(name)
    }

    fn all_headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.head.all_headers()
    }

    fn mcp_call(&self) -> Option<McpCall<'_>> {
        Some(self.call)
    }

    fn may_repeat_headers(&self) -> bool {
        self.head.may_repeat_headers()
    }

    fn first_line<'a>(&'a self, name: &str) -> Option<&'a [u8]> {
        self.head.first_line(name)
    }
}
