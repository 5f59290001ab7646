"""A gRPC client with Envoy's own messages: a line of JSON in, a line of JSON out.

Usage: client.py ADDRESS. A line names the call under "call":
  check     request (as proto3 JSON), metadata    the response, or the error
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
from envoy.extensions.common.ratelimit.v3 import ratelimit_pb2
from envoy.service.ratelimit.v3 import rls_pb2
from google.protobuf import descriptor_pool, json_format
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
TIMEOUT = 20
MESSAGES = [
    rls_pb2.RateLimitRequest,
    rls_pb2.RateLimitResponse,
    rls_pb2.RateLimitResponse.RateLimit,
    rls_pb2.RateLimitResponse.DescriptorStatus,
    ratelimit_pb2.RateLimitDescriptor,
    ratelimit_pb2.RateLimitDescriptor.Entry,
    base_pb2.HeaderValue,
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
