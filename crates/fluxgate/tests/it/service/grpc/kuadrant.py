"""A client of Kuadrant's service with the messages that reflection tells: a line of JSON in, one out.

Usage: kuadrant.py ADDRESS. A line names the call under "call":
  METHOD  request (as proto3 JSON)    the response, or the error
  storm   count, amount, domain, user: as many reservations at once, whose commits are lost, late, repeated
          or in time; what became of them
"""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
from google.protobuf import descriptor_pool, json_format, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

SERVICE = "kuadrant.service.ratelimit.v1.RateLimitService"
TIMEOUT = 30


class Client:
    def __init__(self, channel):
        pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
        self.methods = {}
        for method in pool.FindServiceByName(SERVICE).methods:
            request, response = (
                message_factory.GetMessageClass(it) for it in (method.input_type, method.output_type)
            )
            stub = channel.unary_unary(
                f"/{SERVICE}/{method.name}", request.SerializeToString, response.FromString
            )
            self.methods[method.name] = (request, stub)

    def call(self, name, request):
        kind, stub = self.methods[name]
        try:
            response = stub(json_format.ParseDict(request, kind()), timeout=TIMEOUT)
        except grpc.RpcError as error:
            return {"error": {"code": error.code().name, "message": error.details()}}
        return {
            "response": json_format.MessageToDict(
                response,
                preserving_proto_field_name=True,
                always_print_fields_with_no_presence=True,
            )
        }

    def storm(self, count, amount, domain, user):
        entries = [{"key": "user", "value": user}]
        of_user = {"domain": domain, "descriptors": [{"entries": entries}]}

        def commit(reservation, actual):
            request = {**of_user, "reservation_id": reservation, "actual_amount": actual}
            answer = self.call("Commit", request)
            return answer["error"]["code"] if "error" in answer else answer["response"]["code"]

        def one(number):
            kind = ["lost", "late", "twice", "released", "less"][number % 5]
            short = kind in ("lost", "late")
            request = {**of_user, "amount": amount, "ttl": "1s" if short else "60s"}
            answer = self.call("Reserve", request)["response"]
            if answer["code"] == "OVER_LIMIT":
                assert not answer["reservation_id"]
                return {"refused": 1}
            reservation = answer["reservation_id"]
            if kind == "lost":
                return {"held": 1, "charged": amount}
            if kind == "late":
                time.sleep(2)
                assert commit(reservation, 0) == "NOT_FOUND"
                return {"held": 1, "charged": amount}
            actual = {"twice": 2, "released": 0, "less": 1}[kind]
            assert commit(reservation, actual) == "OK"
            if kind == "twice":
                for _ in range(2):
                    assert commit(reservation, 0) == "NOT_FOUND"
            return {"held": 1, "charged": actual}

        totals = {"refused": 0, "held": 0, "charged": 0}
        with ThreadPoolExecutor(100) as workers:
            for result in workers.map(one, range(count)):
                for name, value in result.items():
                    totals[name] += value
        return totals


def main():
    with grpc.insecure_channel(sys.argv[1]) as channel:
        client = Client(channel)
        for line in sys.stdin:
            call = json.loads(line)
            name = call.pop("call")
            result = client.storm(**call) if name == "storm" else client.call(name, call["request"])
            print(json.dumps(result), flush=True)


main()
