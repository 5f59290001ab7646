"""A gRPC client with Envoy's own messages: a line of JSON in, a line of JSON out.

Usage: client.py ADDRESS. A line names the call under "call":
  check     request (as proto3 JSON), metadata    the response, or the error
  authorize method, path, host, source, filter, headers (pairs), raw (whether headers are sent line
            by line), http (false: no request), timeout: the parts of the response, or the error
  raw       hex: the bytes of a request, method   the response, or the error
  slow                                            the error of a request that is never sent
  health    service                               the status
  watch     service                               a line for each status, then "end"
  services                                        their names, by reflection
  fields                                          name and number of every field, by
                                                  reflection and as Envoy defines them
"""

import json
import sys
import threading

import grpc
from envoy.config.core.v3 import base_pb2
from envoy.config.core.v3 import address_pb2
from envoy.extensions.common.ratelimit.v3 import ratelimit_pb2
from envoy.service.auth.v3 import attribute_context_pb2, external_auth_pb2
from envoy.service.ratelimit.v3 import rls_pb2
from google.protobuf import descriptor_pool, json_format
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

CHECK = "/envoy.service.auth.v3.Authorization/Check"
METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
TIMEOUT = 20
MESSAGES = [
    rls_pb2.RateLimitRequest,
    rls_pb2.RateLimitResponse,
    rls_pb2.RateLimitResponse.RateLimit,
    rls_pb2.RateLimitResponse.DescriptorStatus,
    ratelimit_pb2.RateLimitDescriptor.RateLimitOverride,
    ratelimit_pb2.RateLimitDescriptor,
    ratelimit_pb2.RateLimitDescriptor.Entry,
    base_pb2.HeaderValue,
    base_pb2.HeaderValueOption,
    base_pb2.HeaderMap,
    address_pb2.Address,
    address_pb2.SocketAddress,
    attribute_context_pb2.AttributeContext,
    attribute_context_pb2.AttributeContext.Peer,
    attribute_context_pb2.AttributeContext.Request,
    attribute_context_pb2.AttributeContext.HttpRequest,
    external_auth_pb2.CheckRequest,
    external_auth_pb2.CheckResponse,
    external_auth_pb2.OkHttpResponse,
    external_auth_pb2.DeniedHttpResponse,
]


def should_rate_limit(channel, data, metadata, method=METHOD):
    call = channel.unary_unary(method)
    response, details = call.with_call(data, timeout=TIMEOUT, metadata=metadata)
    message = rls_pb2.RateLimitResponse.FromString(response)
    answer = json_format.MessageToDict(
        message,
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
    )
    return {"response": answer, "metadata": dict(details.initial_metadata())}


def authorize(channel, call, metadata):
    request = external_auth_pb2.CheckRequest()
    attributes = request.attributes
    if call.get("source"):
        attributes.source.address.socket_address.address = call["source"]
    if "filter" in call:
        attributes.context_extensions["filter"] = call["filter"]
    if call.get("http", True):
        http = attributes.request.http
        http.method = call["method"]
        http.path = call["path"]
        http.host = call.get("host", "a.example")
        for name, value in call.get("headers", []):
            if call.get("raw"):
                http.header_map.headers.add(key=name, raw_value=value.encode())
            elif name in http.headers:
                # As Envoy joins them.
                http.headers[name] += "," + value
            else:
                http.headers[name] = value
        if call.get("raw"):
            http.header_map.headers.add(key=":path", raw_value=call["path"].encode())
    answer = channel.unary_unary(CHECK)(
        request.SerializeToString(), timeout=call.get("timeout", TIMEOUT), metadata=metadata
    )
    response = external_auth_pb2.CheckResponse.FromString(answer)
    kind = response.WhichOneof("http_response")
    answered = getattr(response, kind)
    is_ok = kind == "ok_response"
    options = answered.response_headers_to_add if is_ok else answered.headers
    overwrite = base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
    assert all(option.append_action == overwrite for option in options)
    return {
        "code": response.status.code,
        "status": 0 if is_ok else answered.status.code,
        "headers": [[option.header.key, option.header.value] for option in options],
        "body": "" if is_ok else answered.body,
        "metadata": json_format.MessageToDict(response.dynamic_metadata),
    }


def fields(descriptor):
    kinds = {}
    for field in descriptor.fields:
        kind = field.message_type or field.enum_type
        name = kind.full_name if kind else str(field.type)
        repeated = " repeated" if field.is_repeated else ""
        kinds[field.name] = f"{field.number} {name}{repeated}"
    return kinds


def values(descriptor):
    return {
        enum.name: {value.name: value.number for value in enum.values}
        for enum in descriptor.enum_types
    }


def reflected(channel):
    pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
    answer = {}
    for message in MESSAGES:
        name = message.DESCRIPTOR.full_name
        served = pool.FindMessageTypeByName(name)
        answer[name] = {
            "served": {"fields": fields(served), "values": values(served)},
            "envoy": {
                "fields": fields(message.DESCRIPTOR),
                "values": values(message.DESCRIPTOR),
            },
        }
    return answer


def run(channel, call):
    metadata = list(call.get("metadata", {}).items())
    match call["call"]:
        case "check":
            request = json_format.ParseDict(call["request"], rls_pb2.RateLimitRequest())
            return should_rate_limit(channel, request.SerializeToString(), metadata)
        case "authorize":
            return authorize(channel, call, metadata)
        case "raw":
            return should_rate_limit(channel, bytes.fromhex(call["hex"]), metadata, call.get("method", METHOD))
        case "slow":
            never = threading.Event()
            method = channel.stream_unary(METHOD)
            method((never.wait() for _ in range(1)), timeout=2 * TIMEOUT)
        case "health":
            request = health_pb2.HealthCheckRequest(service=call["service"])
            stub = health_pb2_grpc.HealthStub(channel)
            response = stub.Check(request, timeout=TIMEOUT)
            return {"status": health_pb2.HealthCheckResponse.ServingStatus.Name(response.status)}
        case "watch":
            request = health_pb2.HealthCheckRequest(service=call["service"])
            for response in health_pb2_grpc.HealthStub(channel).Watch(request):
                status = health_pb2.HealthCheckResponse.ServingStatus.Name(response.status)
                print(json.dumps({"status": status}), flush=True)
            return {"end": True}
        case "services":
            database = ProtoReflectionDescriptorDatabase(channel)
            return {"services": sorted(database.get_services())}
        case "fields":
            return reflected(channel)


def main():
    with grpc.insecure_channel(sys.argv[1]) as channel:
        for line in sys.stdin:
            try:
                result = run(channel, json.loads(line))
            except grpc.RpcError as error:
                result = {"error": {"code": error.code().name, "message": error.details()}}
            print(json.dumps(result), flush=True)


main()
