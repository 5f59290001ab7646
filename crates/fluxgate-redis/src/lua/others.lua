-- What a call on more than buckets needs.
local call, try = redis.call, redis.pcall
local pack, unpack = struct.pack, struct.unpack
local format = string.format

local SHAPING_BUCKET, FIXED_WINDOW, SLIDING_WINDOW, SLIDING_LOG = 242, 243, 244, 245
local COUNTS = '<BI7I4I4'
-- Where a check has its key.
local KEY_AT = 7
-- What an undo or a cancellation has besides: the instant that the charge went to
-- and the part of it, when the charge was made, the key for a note on that, and the
-- overhang before it.
local MARK, MARK_SIZE = '<I7I4I7I4I4', 26
local TAKE, REFUND, UNDO, CANCEL, TAKE_PLACE = 1, 3, 4, 5, 6
-- What follows the checks of a request that may wait in one of a bounded number of
-- places: the key of the places, how many there are, and the name of the new one.
local PLACE, PLACE_SIZE = '<I4I4c16', 24

