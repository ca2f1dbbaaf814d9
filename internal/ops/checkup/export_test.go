package checkup

// Body is body, for tests.
var Body = body
