//! The commands on keys.

use super::keyspace::{Data, Entry, Keyspace};
use super::reply::Reply;
use super::sorted_set::{ScoreBound, SortedSet, parse_score, ranks, score_text};

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const NO_INTEGER: &str = "ERR value is not an integer or out of range";
const SYNTAX: &str = "ERR syntax error";

type Outcome = Result<Reply, &'static str>;

/// Returns whether a command writes; `None` if it is unknown or has no keys.
fn writes(name: &[u8]) -> Option<bool> {
    Some(match name {
        b"GET" | b"MGET" | b"EXISTS" | b"STRLEN" | b"PTTL" | b"TTL" | b"HGET" | b"HGETALL"
        | b"HLEN" | b"LRANGE" | b"ZRANGE" | b"ZREVRANGE" | b"ZCARD" | b"ZCOUNT" | b"ZSCORE"
        | b"SCAN" | b"TIME" | b"PUBLISH" => false,
        b"SET" | b"PSETEX" | b"UNLINK" | b"DEL" | b"PEXPIRE" | b"PEXPIREAT" | b"HSET" | b"HDEL"
        | b"LPUSH" | b"LTRIM" | b"ZADD" | b"ZREM" | b"ZREMRANGEBYRANK" | b"ZREMRANGEBYSCORE" => {
            true
        }
        _ => return None,
    })
}

/// Returns whether a command may need more memory.
fn needs_memory(name: &[u8]) -> bool {
    matches!(name, b"SET" | b"PSETEX" | b"HSET" | b"LPUSH" | b"ZADD")
}

/// Returns the keys of a command.
pub(super) fn keys_of(command: &[Vec<u8>]) -> &[Vec<u8>] {
    match command[0].as_slice() {
        b"MGET" | b"EXISTS" | b"UNLINK" | b"DEL" => &command[1..],
        b"EVAL" | b"EVALSHA" => {
            let count = command.get(2).and_then(|count| integer(count).ok());
            let keys = command.get(3..).unwrap_or_default();
            keys.get(..count.unwrap_or(0) as usize).unwrap_or_default()
        }
        b"SCAN" | b"TIME" | b"PUBLISH" => &[],
        name if writes(name).is_some() => &command[1..2],
        _ => &[],
    }
}

fn integer(text: &[u8]) -> Result<i64, &'static str> {
    let text = std::str::from_utf8(text).map_err(|_| NO_INTEGER)?;
    text.parse().map_err(|_| NO_INTEGER)
}

impl Keyspace {
    /// Runs a command on keys; `None` if there is no such command.
    pub(super) fn run(&mut self, command: &[Vec<u8>]) -> Option<Reply> {
        let name = command[0].as_slice();
        if writes(name)? {
            // A script that has written goes on.
            let is_refused = match self.refuses_writes {
                Some(cause) if cause.starts_with("OOM") => needs_memory(name) && !self.is_dirty,
                Some(_) => true,
                None => false,
            };
            if is_refused {
                return self.refuses_writes.map(Reply::error);
            }
            self.is_dirty = true;
        }
        let outcome = match name {
            [b'H', ..] => self.run_on_hash(command),
            [b'L', ..] => self.run_on_list(command),
            [b'Z', ..] => self.run_on_sorted(command),
            _ => self.run_on_key(command),
        };
        Some(outcome.unwrap_or_else(Reply::error))
    }

    fn run_on_key(&mut self, command: &[Vec<u8>]) -> Outcome {
        let now = self.millis();
        let args = &command[1..];
        let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
        match (command[0].as_slice(), &args[..]) {
            (b"TIME", []) => Ok(Reply::Array(vec![
                Reply::bulk((self.time / 1_000_000).to_string()),
                Reply::bulk((self.time % 1_000_000).to_string()),
            ])),
            (b"GET", [key]) => Ok(self.text(key)?.map_or(Reply::Nil, Reply::bulk)),
            (b"STRLEN", [key]) => Ok(Reply::count(self.text(key)?.map_or(0, <[u8]>::len))),
            (b"MGET", keys) => {
                let value = |key: &&[u8]| match self.text(key) {
                    Ok(Some(text)) => Reply::bulk(text),
                    _ => Reply::Nil,
                };
                Ok(Reply::Array(keys.iter().map(value).collect()))
            }
            (b"EXISTS", keys) => {
                let there = keys.iter().filter(|key| self.get(key).is_some());
                Ok(Reply::count(there.count()))
            }
            (b"UNLINK" | b"DEL", keys) => {
                let removed = keys.iter().filter(|key| self.remove(key));
                Ok(Reply::count(removed.count()))
            }
            (b"PSETEX", [key, millis, value]) => {
                let millis = integer(millis)?;
                if millis <= 0 {
                    return Err("ERR invalid expire time in 'psetex' command");
                }
                let expires = now + millis as u64;
                self.set(key, Data::Text(value.to_vec()), Some(expires));
                Ok(Reply::OK)
            }
            (b"SET", [key, value, options @ ..]) => self.set_with(key, value, options),
            (b"PEXPIRE", [key, millis, options @ ..]) => {
                let millis = integer(millis)?;
                let at = now.saturating_add_signed(millis);
                self.expire(key, at, options)
            }
            (b"PEXPIREAT", [key, at, options @ ..]) => {
                let at = integer(at)?.max(0) as u64;
                self.expire(key, at, options)
            }
            (b"PTTL", [key]) => Ok(Reply::Int(match self.get(key) {
                None => -2,
                Some(Entry { expires: None, .. }) => -1,
                Some(Entry {
                    expires: Some(at), ..
                }) => (at - now) as i64,
            })),
            (b"PUBLISH", [channel, message]) => {
                self.published.push((channel.to_vec(), message.to_vec()));
                Ok(Reply::Int(1))
            }
            (b"SCAN", [_, b"MATCH", pattern, ..]) => {
                let keys = self.keys().into_iter();
                let keys = keys.filter(|key| matches_glob(pattern, key));
                let keys = keys.map(Reply::Bulk).collect();
                Ok(Reply::Array(vec![Reply::bulk("0"), Reply::Array(keys)]))
            }
            _ => Err(SYNTAX),
        }
    }

    fn text(&self, key: &[u8]) -> Result<Option<&[u8]>, &'static str> {
        match self.get(key) {
            None => Ok(None),
            Some(Entry {
                data: Data::Text(text),
                ..
            }) => Ok(Some(text)),
            Some(_) => Err(WRONG_TYPE),
        }
    }

    fn set_with(&mut self, key: &[u8], value: &[u8], mut options: &[&[u8]]) -> Outcome {
        let (mut expires, mut is_new, mut keeps, mut gets) = (None, false, false, false);
        while let [option, rest @ ..] = options {
            options = rest;
            match (*option, rest) {
                (b"NX", _) => is_new = true,
                (b"GET", _) => gets = true,
                (b"KEEPTTL", _) => keeps = true,
                (b"PX", [millis, rest @ ..]) => {
                    expires = Some(self.millis() + integer(millis)?.max(1) as u64);
                    options = rest;
                }
                (b"EX", [seconds, rest @ ..]) => {
                    expires = Some(self.millis() + 1_000 * integer(seconds)?.max(1) as u64);
                    options = rest;
                }
                (b"PXAT", [at, rest @ ..]) => {
                    expires = Some(integer(at)?.max(0) as u64);
                    options = rest;
                }
                _ => return Err(SYNTAX),
            }
        }
        let before = match gets {
            true => Some(self.text(key)?.map_or(Reply::Nil, Reply::bulk)),
            false => None,
        };
        if is_new && self.get(key).is_some() {
            return Ok(before.unwrap_or(Reply::Nil));
        }
        if keeps {
            expires = self.get(key).and_then(|entry| entry.expires);
        }
        self.set(key, Data::Text(value.to_vec()), expires);
        Ok(before.unwrap_or(Reply::OK))
    }

    fn expire(&mut self, key: &[u8], at: u64, options: &[&[u8]]) -> Outcome {
        let now = self.millis();
        let Some(entry) = self.get_mut(key) else {
            return Ok(Reply::Int(0));
        };
        let is_set = match options {
            [] => true,
            [b"GT"] => entry.expires.is_some_and(|before| at > before),
            [b"LT"] => entry.expires.is_none_or(|before| at < before),
            [b"NX"] => entry.expires.is_none(),
            _ => return Err(SYNTAX),
        };
        if is_set {
            entry.expires = Some(at);
            if at <= now {
                self.remove(key);
            }
        }
        Ok(Reply::Int(is_set.into()))
    }

    fn run_on_hash(&mut self, command: &[Vec<u8>]) -> Outcome {
        let [name, key, args @ ..] = command else {
            return Err(SYNTAX);
        };
        let known = match self.get(key) {
            None => None,
            Some(Entry {
                data: Data::Hash(hash),
                ..
            }) => Some(hash),
            Some(_) => return Err(WRONG_TYPE),
        };
        let is_known = known.is_some();
        match (name.as_slice(), args) {
            (b"HLEN", []) => Ok(Reply::count(known.map_or(0, |hash| hash.len()))),
            (b"HGET", [field]) => {
                let value = known.and_then(|hash| hash.get(field));
                Ok(value.map_or(Reply::Nil, Reply::bulk))
            }
            (b"HGETALL", []) => {
                let pairs = known.into_iter().flatten();
                let items =
                    pairs.flat_map(|(field, value)| [Reply::bulk(field), Reply::bulk(value)]);
                Ok(Reply::Map(items.collect()))
            }
            (b"HSET", pairs) if pairs.len() % 2 == 0 => {
                if !is_known {
                    self.set(key, Data::Hash(Default::default()), None);
                }
                let Some(Data::Hash(hash)) = self.get_mut(key).map(|entry| &mut entry.data) else {
                    return Err(WRONG_TYPE);
                };
                let new = pairs.chunks(2).filter(|pair| {
                    let before = hash.insert(pair[0].clone(), pair[1].clone());
                    before.is_none()
                });
                Ok(Reply::count(new.count()))
            }
            (b"HDEL", fields) if is_known => {
                let Some(Data::Hash(hash)) = self.get_mut(key).map(|entry| &mut entry.data) else {
                    return Err(WRONG_TYPE);
                };
                let removed = fields.iter().filter(|field| hash.remove(*field).is_some());
                let removed = removed.count();
                if hash.is_empty() {
                    self.remove(key);
                }
                Ok(Reply::count(removed))
            }
            (b"HDEL", _) => Ok(Reply::Int(0)),
            _ => Err(SYNTAX),
        }
    }

    fn run_on_list(&mut self, command: &[Vec<u8>]) -> Outcome {
        let [name, key, args @ ..] = command else {
            return Err(SYNTAX);
        };
        let list: &[Vec<u8>] = match self.get(key) {
            None => &[],
            Some(Entry {
                data: Data::List(list),
                ..
            }) => list,
            Some(_) => return Err(WRONG_TYPE),
        };
        match (name.as_slice(), args) {
            (b"LRANGE", [first, last]) => {
                let (from, to) = ranks(integer(first)?, integer(last)?, list.len());
                let items = list[from..to].iter().map(Reply::bulk);
                Ok(Reply::Array(items.collect()))
            }
            (b"LPUSH", items) => {
                let mut list = list.to_vec();
                for item in items {
                    list.insert(0, item.clone());
                }
                let count = list.len();
                let expires = self.get(key).and_then(|entry| entry.expires);
                self.set(key, Data::List(list), expires);
                Ok(Reply::count(count))
            }
            (b"LTRIM", [first, last]) => {
                let (from, to) = ranks(integer(first)?, integer(last)?, list.len());
                let list = list[from..to].to_vec();
                let expires = self.get(key).and_then(|entry| entry.expires);
                if list.is_empty() {
                    self.remove(key);
                } else {
                    self.set(key, Data::List(list), expires);
                }
                Ok(Reply::OK)
            }
            _ => Err(SYNTAX),
        }
    }

    fn run_on_sorted(&mut self, command: &[Vec<u8>]) -> Outcome {
        const NOT_A_FLOAT: &str = "ERR value is not a valid float";
        let [name, key, args @ ..] = command else {
            return Err(SYNTAX);
        };
        let empty = SortedSet::default();
        let set = match self.get(key) {
            None => &empty,
            Some(Entry {
                data: Data::Sorted(set),
                ..
            }) => set,
            Some(_) => return Err(WRONG_TYPE),
        };
        let bounds = |least: &[u8], most: &[u8]| {
            let bounds = ScoreBound::parse(least).zip(ScoreBound::parse(most));
            bounds.ok_or("ERR min or max is not a float")
        };
        match (name.as_slice(), args) {
            (b"ZCARD", []) => Ok(Reply::count(set.len())),
            (b"ZSCORE", [member]) => {
                let score = set.score(member);
                Ok(score.map_or(Reply::Nil, |score| Reply::bulk(score_text(score))))
            }
            (b"ZCOUNT", [least, most]) => {
                let (least, most) = bounds(least, most)?;
                Ok(Reply::count(set.count(least, most)))
            }
            (b"ZRANGE" | b"ZREVRANGE", [first, last, options @ ..]) => {
                let (mut first, mut last) = (integer(first)?, integer(last)?);
                let is_reversed = name == b"ZREVRANGE";
                if is_reversed {
                    (first, last) = (-1 - last, -1 - first);
                }
                let with_scores = match options {
                    [] => false,
                    [option] if option == b"WITHSCORES" => true,
                    _ => return Err(SYNTAX),
                };
                let mut range: Vec<_> = set.range(first, last).iter().collect();
                if is_reversed {
                    range.reverse();
                }
                let items = range.into_iter().flat_map(|(score, member)| {
                    let score = with_scores.then(|| Reply::bulk(score_text(*score)));
                    [Some(Reply::bulk(member)), score]
                });
                Ok(Reply::Array(items.flatten().collect()))
            }
            (b"ZADD", pairs) if pairs.len() % 2 == 0 => {
                let pairs: Option<Vec<(f64, &[u8])>> = pairs
                    .chunks(2)
                    .map(|pair| Some((parse_score(&pair[0])?, pair[1].as_slice())))
                    .collect();
                let pairs = pairs.ok_or(NOT_A_FLOAT)?;
                let added = self.change_sorted(key, |set| {
                    let new = pairs
                        .iter()
                        .filter(|(score, member)| set.insert(*score, member));
                    new.count()
                });
                Ok(Reply::count(added))
            }
            (b"ZREM", members) => {
                let removed = self.change_sorted(key, |set| {
                    members.iter().filter(|member| set.remove(member)).count()
                });
                Ok(Reply::count(removed))
            }
            (b"ZREMRANGEBYRANK", [first, last]) => {
                let (first, last) = (integer(first)?, integer(last)?);
                let removed = self.change_sorted(key, |set| set.remove_range(first, last));
                Ok(Reply::count(removed))
            }
            (b"ZREMRANGEBYSCORE", [least, most]) => {
                let (least, most) = bounds(least, most)?;
                let removed = self.change_sorted(key, |set| set.remove_scores(least, most));
                Ok(Reply::count(removed))
            }
            _ => Err(SYNTAX),
        }
    }

    /// Changes a sorted set. It comes with its first member and goes with its last.
    fn change_sorted(&mut self, key: &[u8], change: impl FnOnce(&mut SortedSet) -> usize) -> usize {
        if self.get(key).is_none() {
            self.set(key, Data::Sorted(SortedSet::default()), None);
        }
        let Some(Data::Sorted(set)) = self.get_mut(key).map(|entry| &mut entry.data) else {
            return 0;
        };
        let count = change(set);
        if set.is_empty() {
            self.remove(key);
        }
        count
    }
}

/// Returns whether a text matches a pattern of `SCAN`. The stores use only `*`, `?` and escapes.
fn matches_glob(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern, text) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => {
            (0..=text.len()).any(|skipped| matches_glob(rest, &text[skipped..]))
        }
        ([b'?', pattern @ ..], [_, text @ ..]) => matches_glob(pattern, text),
        ([b'\\', escaped, pattern @ ..], [letter, text @ ..]) => {
            escaped == letter && matches_glob(pattern, text)
        }
        ([first, pattern @ ..], [letter, text @ ..]) => {
            first == letter && matches_glob(pattern, text)
        }
        _ => false,
    }
}
