-- FluxGate, script format 2.
--
-- Every number is a whole one below 2^53, where doubles are exact. The domain:
-- C, R and costs to 1e9 (2^29.9); windows, periods and max_wait to 366 days
-- (2^44.9 us); C*P/R to 3660 days (2^48.2 us); a horizon to 2^50 us; so instants,
-- from the year 2100 and as far ahead as a bucket may be from full, to 2^52.5 us,
-- and with the cost of a request to 2^53. Products are taken in three places only: the us of a window in ms, the
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

-- What names an algorithm in a check: a bucket, one that shapes, and the others.
local SHAPING_BUCKET, SLIDING_LOG = 242, 245
-- A bucket: its tag, which both kinds have; the exponent of its horizon; the
-- instant in us, the part of one, and R. One that reservations lie past has how
-- far these do, too (see `overhang` in bucket_back.lua).
local BUCKET, BUCKET_TAG = '<BBI7I4I4', 241
local BUCKET_SIZE, LONG_BUCKET, LONG_BUCKET_SIZE = 17, '<BBI7I4I4I4', 21
-- Counts: the tag of their algorithm, start, previous and current count.
local COUNTS_SIZE = 16
-- The shorter state of a bucket with no fraction: 16 digits for the instant and
-- 2 for the horizon. To the server that is an integer, which needs no string.
local DIGITS_SIZE = 18

-- By the number of a key: the state of a cell as it now stands, and the instant
-- in it if that is in digits; when a cell that must be written ends, or 0 if it
-- is to be removed. With room for one, which is often all there is.
local cells, instants, dirty = { false }, { false }, { false }
-- By the number of a key, if there are any: the window of a log; what is not ours.
local logs, foreign

-- Makes all that a call on buckets does not need, and what it made.
local others, more
