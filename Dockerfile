# make image builds it, and so do docker build, podman build, buildah build and az acr build, which has
# no BuildKit. For another architecture than the machine's: docs/releases.md.
FROM golang:1.26.8 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY Makefile ./
COPY cmd cmd
COPY internal internal
ARG TARGETARCH
ARG VERSION
ARG COMMIT
RUN make build VERSION="$VERSION" COMMIT="$COMMIT" OUTPUT="/out/alertworker-$TARGETARCH"

FROM scratch
ARG TARGETARCH
ARG VERSION
ARG COMMIT
LABEL org.opencontainers.image.title=alertworker \
      org.opencontainers.image.description="Reads an Azure IoT Hub's telemetry and alerts about hot devices" \
      org.opencontainers.image.licenses=MIT \
      org.opencontainers.image.version=$VERSION \
      org.opencontainers.image.revision=$COMMIT
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/alertworker-$TARGETARCH /alertworker
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["/alertworker"]
