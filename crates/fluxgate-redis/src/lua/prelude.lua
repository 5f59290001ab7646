-- FluxGate, script format 1.
--
-- Every number is a whole one below 2^53, where doubles are exact. The domain:
-- C, R and costs to 1e9 (2^29.9); windows, periods and max_wait to 366 days
-- (2^44.9 us); C*P/R to 3660 days (2^48.2 us); so instants, from the year 2100
-- and as far ahead as a bucket may owe, to 2^52 us, and the sum of two numbers to
-- 2^53. Products are taken in three places only: the us of a window in ms, the
-- fraction of another refill (bucket.lua) and the weight of a sliding window
-- (sliding_window.lua), the last two with a proof of their own.
-- `a % b` is exact for whole 0 <= a < 2^53 and b >= 1: a quotient that is not
-- whole is at least 1/b from what is, and rounding moves it by at most
-- a/b * 2^-53 < 1/b.
--
-- Functions and tables are made anew in every call, and that takes longer than
-- most of what they do. So a call on buckets, the most common one, makes only
-- what stands outside `others`, and `others` has its own names for what it would
-- else have to reach out for.
local call, pack, spread, unpack = redis.call, struct.pack, unpack, struct.unpack
local byte, format, sub = string.byte, string.format, string.sub

-- What names an algorithm, in a check and at the head of a state. The token
-- bucket has 241.
local LEAKY_BUCKET, SLIDING_LOG = 242, 245
-- A state: algorithm, window in ms, and three numbers.
local STATE, STATE_SIZE = '<BI5I7I4I4', 21
-- The shorter state of a bucket with no fraction: 16 digits for the instant and
-- 3 for the window. To the server that is an integer, which needs no string.
local DIGITS_SIZE = 19

-- By the number of a key: the state of a cell as it now stands, and the instant
-- in it if that is in digits; when a cell that must be written ends, or 0 if it
-- is to be removed. With room for one, which is often all there is.
local cells, instants, dirty = { false }, { false }, { false }
-- By the number of a key, if there are any: the window of a log; what is not ours.
local logs, foreign
