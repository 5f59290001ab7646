-- FluxGate, script format 2.
--
-- Every number is a whole number below 2^53, where doubles are exact. The domain:
-- C, R and costs up to 1e9 (2^29.9); windows, periods and max_wait up to 366 days
-- (2^44.9 us); C*P/R up to 3660 days (2^48.2 us); a horizon up to 2^50 us; so
-- instants, from the year 2100 and as far ahead as a bucket may take to fill, up to
-- 2^52.5 us, and with the cost of a request up to 2^53. There are three products
-- only: the us of a window in ms, the fraction of another refill (bucket.lua) and
-- the weight of a sliding window (sliding_window.lua). The last two have a proof.
-- `a % b` is exact for whole 0 <= a < 2^53 and b >= 1: a quotient that is not
-- whole differs from a whole one by at least 1/b, and rounding moves it by at most
-- a/b * 2^-53 < 1/b.
--
-- Lua creates functions and tables anew in every call, which takes longer than most
-- of what they do. So a call on buckets, the most common one, creates only what is
-- outside `load_slow_path`. That function has its own locals for what would
-- otherwise be upvalues.
local call, pack, spread, unpack = redis.call, struct.pack, unpack, struct.unpack
local byte, format, sub = string.byte, string.format, string.sub

-- Tags of algorithms in a check.
local SHAPING_BUCKET, SLIDING_LOG = 242, 245
-- The state of a bucket: its tag, the same for both kinds; the exponent of its
-- horizon; the instant in us, the fraction of one, and R. A long bucket also has an
-- overhang (see bucket_refund.lua).
local BUCKET, BUCKET_TAG = '<BBI7I4I4', 241
local BUCKET_SIZE, LONG_BUCKET, LONG_BUCKET_SIZE = 17, '<BBI7I4I4I4', 21
-- Counts: the tag of their algorithm, start, previous and current count.
local COUNTS_SIZE = 16
-- What is reported of slots.
local SLOTS_SIZE = 19
-- The shorter state of a bucket without a fraction: 16 digits for the instant and
-- 2 for the horizon. The server stores that as an integer, without a string.
local DIGITS_SIZE = 18

-- By the number of a key: the current state of a cell, and its instant if that is
-- in digits; when a cell that must be written expires, or 0 if it must be removed.
-- Preallocated for one, which is often all there is.
local cells, instants, dirty = { false }, { false }, { false }
-- By the number of a key, if there are any: the window of a log; whether the value
-- is foreign, that is, not written by this script.
local logs, foreign

-- Defines the slow path, and the functions it returned once it has run.
local load_slow_path, slow
