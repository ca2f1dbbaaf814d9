FROM golang:1.26.8 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY cmd cmd
COPY internal internal
ARG VERSION=
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.release=$VERSION" -o /alertworker ./cmd/alertworker

FROM scratch
ARG VERSION=
LABEL org.opencontainers.image.title=alertworker \
      org.opencontainers.image.version=$VERSION \
      org.opencontainers.image.licenses=MIT
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /alertworker /alertworker
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["/alertworker"]
