# For docker with BuildKit, podman or buildah: make image, or docker build .
# The build stage runs on the machine's own architecture, whatever the image is for.
FROM --platform=$BUILDPLATFORM golang:1.26.8 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY Makefile ./
COPY cmd cmd
COPY internal internal
ARG TARGETOS
ARG TARGETARCH
ARG VERSION
ARG COMMIT
RUN GOOS=$TARGETOS GOARCH=$TARGETARCH make build VERSION="$VERSION" COMMIT="$COMMIT"

FROM scratch
ARG VERSION
ARG COMMIT
LABEL org.opencontainers.image.title=alertworker \
      org.opencontainers.image.description="Reads an Azure IoT Hub's telemetry and alerts about hot devices" \
      org.opencontainers.image.licenses=MIT \
      org.opencontainers.image.version=$VERSION \
      org.opencontainers.image.revision=$COMMIT
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /src/bin/alertworker /alertworker
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["/alertworker"]
