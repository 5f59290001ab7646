-- FluxGate, script format 2.
--
-- Every number is a whole number below 2^53, where doubles are exact. The domain: C, R and
-- costs are at most 1e9 (2^29.9); windows, periods and max_wait 366 days (2^44.9 us); C*P/R
-- 3660 days (2^48.2 us); a horizon 2^50 us. So an instant, in the year 2100 plus the time that
-- a bucket may take to fill, is at most 2^52.5 us, and 2^53 us with the cost of a request.
-- There are only three products: the us of a window in ms, the fraction of another refill
-- (bucket.lua) and the weight of a sliding window (sliding_window.lua). The last two have a
-- proof. `a % b` is exact for whole 0 <= a < 2^53 and b >= 1: a quotient that is not whole
-- differs from a whole one by at least 1/b, and rounding moves it by at most
-- a/b * 2^-53 < 1/b.
--
-- Lua creates functions and tables anew in every call, which takes longer than most of what
-- they do. So a call on buckets, the most common one, creates only what is outside
-- `load_slow_path`. That function has its own locals instead of upvalues.
local call, pack, spread, unpack = redis.call, struct.pack, unpack, struct.unpack
local byte, format, sub = string.byte, string.format, string.sub

-- Tags of algorithms in a check.
local SHAPING_BUCKET, SLIDING_LOG = 242, 245
-- The state of a bucket: its tag, the same for both kinds; the exponent of its horizon; the
-- instant in us and its fraction; and R. A long bucket also has an overhang (bucket_refund.lua).
local BUCKET, BUCKET_TAG = '<BBI7I4I4', 241
local BUCKET_SIZE, LONG_BUCKET, LONG_BUCKET_SIZE = 17, '<BBI7I4I4I4', 21
-- Counts: the tag of their algorithm, start, previous and current count.
local COUNTS_SIZE = 16
-- The summary of slots in a reply.
local SLOTS_SIZE = 19
-- The shorter state of a bucket without a fraction: 16 digits for the instant and 2 for the
-- horizon. The server stores it as an integer, without a string.
local DIGITS_SIZE = 18

-- By the number of a key: the current state of a cell; its instant, if that is in digits; and
-- when a changed cell expires, or 0 to remove it. Preallocated for one key, which is often all.
local cells, instants, dirty = { false }, { false }, { false }
-- By the number of a key, if there are any: the window of a log; whether the value is foreign,
-- that is, not written by this script.
local logs, foreign

-- The function that defines the slow path, and the functions that it returned.
local load_slow_path, slow
