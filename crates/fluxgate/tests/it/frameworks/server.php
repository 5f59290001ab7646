<?php
// Serves what PHP reads of a request, as server.py does.
$path = rawurldecode(parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH) ?: '');
if (preg_match('#^/login/?$#', $path)) {
    echo 'login';
} elseif (preg_match('#^/x$#', $path)) {
    $words = preg_split('/\s+/', $_SERVER['HTTP_AUTHORIZATION'] ?? '');
    $bearer = strtolower($words[0]) === 'bearer' ? ($words[1] ?? '') : '';
    $show = fn($value) => is_array($value) ? implode(',', $value) : (string) $value;
    printf('method=%s header=%s query=%s cookie=%s bearer=%s', $_SERVER['REQUEST_METHOD'],
        $_SERVER['HTTP_X_API_KEY'] ?? '', $show($_GET['api_key'] ?? ''), $show($_COOKIE['app_session'] ?? ''), $bearer);
} else {
    http_response_code(404);
}
