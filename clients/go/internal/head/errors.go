package head

// BadRequest is the reason why a request is answered with 400: servers may read it in different
// ways, so the limiter could count another request than the one that is served.
type BadRequest string

func (b BadRequest) Error() string { return string(b) }

const (
	errNoPath          BadRequest = "the target is not a path"
	errPathDots        BadRequest = "the path has `.` or `..` in it"
	errPathControl     BadRequest = "the path has a control character in it"
	errPathNotText     BadRequest = "the path is not UTF-8 when its escapes are decoded"
	errPathHiddenSlash BadRequest = "the path has an escaped slash or a backslash behind a `;`"
	errConflict        BadRequest = "a header, query parameter or cookie that requests are counted by is repeated with different values"
	errAlikeHeader     BadRequest = "servers may take the name of a header for one that requests are counted by, or for one that proxies set"
	errUnclearValue    BadRequest = "a value that requests are counted by contains control characters, encoded words or bytes that are not UTF-8, or begins or ends with white space"
	errMethod          BadRequest = "the method differs from a registered one only by case"
)
