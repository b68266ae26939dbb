"""Locations of a ledger that somebody mistyped, with a password in them."""

SECRET = "hunter2"
MISTYPED = [
    "host=db user=u password=hunter2 dbname=l", "host = db passwd = hunter2",
    "postgresql:/u:hunter2@db/l", "u:hunter2@db/l", "//u:hunter2@db/l",
    "postgresql+psycopg://u:hunter2@db/l?sslmode=verify-full",
    "postgresql+psycopg://u:hun/ter2@db/l", "postgresql+psycopg://u:hunter2@db:x/l",
    "postgresql+psycopg://u%3Ahunter2@/l?host=/nowhere",
    "postgresql+psycopg://u%3ahunter2@/l?host=/nowhere",
    "postgresql+psycopg://u@db/l?PASSWORD=hunter2",
    "postgresql+psycopg://u@db/l?%70assword=hunter2",
    "postgresql+psycopg://u@db/l?sslpassword=hunter2",
    "postgresql+psycopg://u@db/l?options=hunter2", "postgresql://u:hunter2@db/l",
    "postgres:u,hunter2", "mysql+pymysql://u:hunter2@db/l", "hunter2://db/l",
    "sqlite:///x?password=hunter2", "sqlite:///u:hunter2@db", "user=u hunter2",
]  # fmt: skip
