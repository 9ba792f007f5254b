# Rack: each request is served from the database of its episode, at the episode's time.
require 'fileutils'
require 'sqlite3'

class EpisodeDatabases
  ID = /\A[0-9a-z-]{1,64}\z/.freeze
  EPISODE_PATH = %r{\A/__episode__/(.*)\z}.freeze

  # template: database that each episode starts with; folder: of the episodes' databases.
  def initialize(app, template:, folder:)
    @app = app
    @template = template
    @folder = folder
    @mutex = Mutex.new # ActiveRecord has one connection pool, which belongs to @connected
    @connected = nil
  end

  def call(env)
    path = env['PATH_INFO']
    return answer(200, 'ok') if path == '/__health__'
    return remove(env, Regexp.last_match(1)) if path =~ EPISODE_PATH

    episode = env['HTTP_X_EPISODE'].to_s
    return refuse(episode) unless ID.match?(episode)

    @mutex.synchronize { serve(env, database_of(episode)) }
  end

  private

  def remove(env, episode)
    return answer(405, 'only DELETE') unless env['REQUEST_METHOD'] == 'DELETE'
    return refuse(episode) unless ID.match?(episode)

    @mutex.synchronize do
      database = database_of(episode)
      disconnect if @connected == database
      FileUtils.rm_f(database)
    end
    [204, {}, []]
  end

  def serve(env, database)
    connect(database)
    moment = EpisodeClock::START + tick
    EpisodeClock.at(moment) do
      status, headers, body = @app.call(env)
      # Read and closed here: the connection goes back to the pool when the body is closed, and the
      # next thread's establish_connection waits for it, ten seconds long.
      [status, headers, drained(body)]
    end
  ensure
    ActiveRecord::Base.clear_active_connections!
  end

  def drained(body)
    parts = []
    body.each { |part| parts << part }
    parts
  ensure
    body.close if body.respond_to?(:close)
  end

  def connect(database)
    unless File.exist?(database)
      disconnect
      FileUtils.cp(@template, "#{database}.new")
      File.rename("#{database}.new", database)
    end
    return if @connected == database

    ActiveRecord::Base.establish_connection(adapter: 'sqlite3', database: database, timeout: 5000)
    @connected = database
    connection = ActiveRecord::Base.connection
    connection.execute('PRAGMA synchronous=OFF')
    connection.execute('PRAGMA journal_mode=MEMORY')
    Setting.clear_cache
  end

  def disconnect
    @connected = nil
    ActiveRecord::Base.remove_connection
  end

  # Seconds since the start of the episode: one more with each request. They are kept in a field of
  # the database file that Redmine does not use.
  def tick
    connection = ActiveRecord::Base.connection
    seconds = connection.select_value('PRAGMA user_version').to_i
    connection.execute("PRAGMA user_version=#{seconds + 1}")
    seconds
  end

  def database_of(episode)
    File.join(@folder, "#{episode}.sqlite3")
  end

  def refuse(episode)
    answer(400, "X-Episode: #{episode.inspect} should be 1 to 64 of the characters 0-9, a-z and -")
  end

  def answer(status, text)
    [status, { 'Content-Type' => 'text/plain' }, ["#{text}\n"]]
  end
end
