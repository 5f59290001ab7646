-- What a call on more than buckets needs.
local call, try = redis.call, redis.pcall
local pack, unpack = struct.pack, struct.unpack
local format = string.format

local LEAKY_BUCKET, FIXED_WINDOW, SLIDING_WINDOW, SLIDING_LOG = 242, 243, 244, 245
local STATE, STATE_SIZE = '<BI5I7I4I4', 21
-- Where a check has its key.
local KEY_AT = 7
-- What an undo has besides: the instant that the charge went to and the part of
-- it, when the charge was made, and the key for a note on that.
local MARK, MARK_SIZE = '<I7I4I7I4', 22
local TAKE, REFUND, UNDO = 1, 3, 4

