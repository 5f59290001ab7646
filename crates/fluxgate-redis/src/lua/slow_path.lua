-- Locals of the slow path, which runs all requests but single decisions on buckets.
local call, try = redis.call, redis.pcall
local pack, unpack = struct.pack, struct.unpack
local byte, format = string.byte, string.format

local SHAPING_BUCKET, FIXED_WINDOW, SLIDING_WINDOW, SLIDING_LOG = 242, 243, 244, 245
local CALENDAR_WINDOW = 246
local COUNTS = '<BI7I4I4'
-- The offsets of the key and of the algorithm in a check.
local KEY_AT, TAG_AT = 7, 11
-- What follows each check of an undo or a cancellation: the instant that the charge went to and
-- its fraction, when the charge was made, the key for a note, and the overhang before it.
local MARK, MARK_SIZE = '<I7I4I7I4I4', 26
local PEEK, REFUND, UNDO, CANCEL, TAKE_PERMIT = 2, 3, 4, 5, 6
-- Added to the operation of a request with checks that are charged always.
local WITH_ALWAYS = 32
-- What follows the checks of a request that needs a permit to wait: the key of the permits,
-- their maximum number, and the id of the new one.
local PERMIT, PERMIT_SIZE = '<I4I4c16', 24
