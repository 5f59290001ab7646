//! OpenAI's own client.
