# The clock of an episode: Time.now, Date.today and DateTime.now tell the episode's time in a thread
# that serves one, the real time in all others (the server's own, which measure with it).
require 'date'
require 'time'

module EpisodeClock
  START = Time.utc(2024, 3, 1, 12, 0, 0)
  KEY = :episode_moment # of the thread and not of a fiber: a body may be read in a fiber of its own

  def self.moment
    Thread.current.thread_variable_get(KEY)
  end

  def self.at(moment)
    before = self.moment
    Thread.current.thread_variable_set(KEY, moment)
    yield
  ensure
    Thread.current.thread_variable_set(KEY, before)
  end

  module ForTime
    def now(**options)
      moment = EpisodeClock.moment
      return super if moment.nil?

      options[:in] ? moment.getlocal(options[:in]) : moment.getlocal
    end

    def new(*arguments, **options)
      arguments.empty? && EpisodeClock.moment ? now(**options) : super
    end
  end

  module ForDate
    def today(*arguments)
      EpisodeClock.moment ? EpisodeClock.moment.getlocal.to_date : super
    end
  end

  module ForDateTime
    def now(*arguments)
      EpisodeClock.moment ? EpisodeClock.moment.getlocal.to_datetime : super
    end
  end
end

Time.singleton_class.prepend(EpisodeClock::ForTime)
Date.singleton_class.prepend(EpisodeClock::ForDate)
DateTime.singleton_class.prepend(EpisodeClock::ForDateTime)
