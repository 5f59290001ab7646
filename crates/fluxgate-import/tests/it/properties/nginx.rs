//! Properties of nginx.

use fluxgate_import::Format;

use super::{BOTH, CONFIG, Sample};

/// What limits requests, which the rules alone have, too.
pub(super) const LIMITS: Sample = Sample {
    format: Format::Nginx,
    outputs: BOTH,
    text: TEXT,
    places: &[
        (
            "@MAIN@",
            &[
                "include foo.conf;",
                "stream { limit_conn_zone $remote_addr zone=s:1m; server { listen 1; limit_conn s 3; } }",
            ],
        ),
        (
            "@HTTP@",
            &[
                "limit_conn c 9;",
                "limit_conn_log_level warn;",
                "limit_conn_status 503;",
                "limit_conn_zone $binary_remote_addr zone=unused:1m;",
                "limit_rate 100k;",
                "limit_rate_after 1m;",
                "limit_req_log_level warn;",
                "limit_req_status 503;",
                "limit_req_zone $binary_remote_addr zone=unused:1m rate=10r/s;",
                "limit_zone x $binary_remote_addr 1m;",
                "real_ip_header X-Real-IP;",
                "real_ip_recursive on;",
                "set_real_ip_from 10.0.0.0/8;",
            ],
        ),
        (
            "@SERVER@",
            &[
                "limit_conn c 2;",
                "limit_req_dry_run on;",
                "real_ip_header X-Real-IP;",
                "server_name c.d;",
            ],
        ),
        (
            "@LOCATION@",
            &[
                "limit_conn_dry_run on;",
                "limit_req zone=z burst=9 nodelay;",
                "limit_req zone=z delay=3;",
                "location /x/y { limit_req zone=z; }",
            ],
        ),
    ],
};

pub(super) const ROUTES: Sample = Sample {
    format: Format::Nginx,
    outputs: CONFIG,
    text: TEXT,
    places: &[
        (
            "@MAIN@",
            &[
                "events { worker_connections 4; }",
                "mail { }",
                "stream { server { listen 1; } }",
                "worker_processes 1;",
            ],
        ),
        (
            "@HTTP@",
            &[
                "allow 10.0.0.0/8;",
                "auth_basic x;",
                "client_max_body_size 2m;",
                "client_max_body_size x;",
                "proxy_connect_timeout 2s;",
                "proxy_hide_header X-A;",
                "proxy_read_timeout never;",
                "proxy_set_header Host $host;",
                "proxy_set_header X-A a;",
                "proxy_set_header X-A $a;",
                "proxy_set_header X-Forwarded-For none;",
                "proxy_set_header X-Real-IP $remote_addr;",
                "upstream b { server a max_fails=3; }",
                "upstream b { server a; server b backup; }",
                "upstream b { server a; ip_hash; }",
                "misspelt 1;",
            ],
        ),
        (
            "@SERVER@",
            &[
                "error_page 429 /x;",
                "if ($a) { return 403; }",
                "listen 443 ssl;",
                "listen 443 ssl; ssl_certificate x; ssl_certificate_key y;",
                "location /g { grpc_pass grpc://g:1; grpc_read_timeout 1h; }",
                "location /g { proxy_pass https://g/; }",
                "return 200;",
                "ssl_protocols TLSv1;",
                "misspelt 1;",
            ],
        ),
        (
            "@LOCATION@",
            &[
                "deny all;",
                "limit_except GET { deny all; }",
                "proxy_read_timeout 3s;",
                "rewrite ^/a /b;",
                "root /x;",
                "misspelt 1;",
            ],
        ),
    ],
};

pub(super) const TEXT: &str = "@MAIN@
http {
  @HTTP@
  limit_req_zone $binary_remote_addr zone=z:1m rate=10r/s;
  limit_conn_zone $binary_remote_addr zone=c:1m;
  server {
    listen 80;
    server_name a.b;
    @SERVER@
    limit_req zone=z burst=5;
    location /x {
      @LOCATION@
      limit_conn c 3;
      proxy_pass http://u:1;
    }
  }
}
";
